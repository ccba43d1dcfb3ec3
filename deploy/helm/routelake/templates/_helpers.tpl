{{- define "routelake.name" -}}
{{- $name := .Release.Name | trunc 40 | trimSuffix "-" }}
{{- if contains "routelake" $name }}{{ $name }}{{ else }}{{ .Release.Name | trunc 30 | trimSuffix "-" }}-routelake{{ end }}
{{- end }}

{{- define "routelake.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "routelake.selector" . }}
{{- end }}

{{- define "routelake.selector" -}}
app.kubernetes.io/name: routelake
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "routelake.claim" -}}
{{- .Values.nameserver.persistence.existingClaim | default (printf "%s-lake" (include "routelake.name" .)) }}
{{- end }}

{{- define "routelake.isShared" -}}
{{- if and .Values.nameserver.persistence.enabled (not .Values.lake.url) }}
{{- true }}
{{- end }}
{{- end }}

{{- define "routelake.lake" -}}
{{- with .Values.lake.url }}
- {name: ROUTELAKE_LAKE, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{- define "routelake.lakeSecret" -}}
{{- if and .Values.lake.url .Values.lake.existingSecret }}
envFrom:
  - secretRef: {name: {{ .Values.lake.existingSecret | quote }}}
{{- end }}
{{- end }}

{{- define "routelake.podSecurity" -}}
runAsNonRoot: true
runAsUser: 9876
runAsGroup: 9876
fsGroup: 9876
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "routelake.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "routelake.log" -}}
{{- required "eventLog: name the event log, kafka://HOST:PORT/TOPIC: pods share no SQLite file" .Values.eventLog }}
{{- end }}

{{- define "routelake.isCluster" -}}
{{- with .Values.fold.cluster }}
{{- if .master }}
{{- $_ := required "fold.cluster.existingSecret: name the Secret with Spark's properties (docs/how-to/operate/spark-cluster.md)" .existingSecret }}
{{- $_ := required "fold.cluster.sharedClaim: name the claim that executors have under /shared, too" .sharedClaim }}
{{- true }}
{{- end }}
{{- end }}
{{- end }}

{{- define "routelake.foldAccount" -}}
{{- .Values.fold.cluster.serviceAccount | default (printf "%s-fold" (include "routelake.name" .)) }}
{{- end }}

// The mixin layout (https://monitoring.mixins.dev): alerts, rules and the dashboard, made from the plain files beside this
// one, which also serve without jsonnet.
{
  _config+:: {
    // Where docs/how-to/operate/operations.md can be read; `%s` is the alert's name in lower case.
    runbookURLPattern: 'docs/how-to/operate/operations.md#%s',
  },

  grafanaDashboards+:: {
    'routelake.json': import 'dashboards/routelake.json',
  },

  prometheusRules+:: std.parseYaml(importstr 'rules.yaml'),

  prometheusAlerts+:: {
    local alerts = std.parseYaml(importstr 'alerts.yaml'),
    groups: [
      group {
        rules: [
          rule {
            annotations+: { runbook_url: $._config.runbookURLPattern % std.asciiLower(rule.alert) },
          }
          for rule in group.rules
        ],
      }
      for group in alerts.groups
    ],
  },
}

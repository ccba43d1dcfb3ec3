// The mixin layout (https://monitoring.mixins.dev): alerts, rules and the dashboard, made from the plain files beside this
// one, which also serve without jsonnet.
{
  _config+:: {
    // Address of an alert's page in your copy of the documentation. `%s` is the alert's name. The default is a placeholder, where no
    // page exists.
    runbookURLPattern: 'https://routelake.example/docs/how-to/operate/alerts/%s.html',
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
            annotations+: { runbook_url: $._config.runbookURLPattern % rule.alert },
          }
          for rule in group.rules
        ],
      }
      for group in alerts.groups
    ],
  },
}

"""The gateway: what brokers, clients, admins and dashboards talk to."""

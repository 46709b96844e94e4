"""The controller's interfaces on a cluster: store, channel, plan header, driver, job pods."""

"""The controller on a cluster: caches, queue, leader, and the Kubernetes side of every interface."""

"""The custom resource definitions, made from the models."""

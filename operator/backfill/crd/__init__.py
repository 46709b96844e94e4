"""CustomResourceDefinitions, generated from the models."""

"""`holdfast train`: one file per kind of model."""

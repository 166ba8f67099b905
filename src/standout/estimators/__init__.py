"""The estimators: thin scikit-learn skins. Validate, add up moments, solve, keep the model."""

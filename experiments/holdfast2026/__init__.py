"""Plans that hold: our own study of survival search on networks and trees, with its rivals and an oracle."""

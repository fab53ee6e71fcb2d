"""The state that everybody in this process shares, which plugins must leave as it is."""

"""The command `mycelia`: train, evaluate, serve and watch."""

"""How fast the replay service is, through its real server and client over loopback."""

"""Running agents: the runtime, the driver of one session, live handles and the catalogue."""

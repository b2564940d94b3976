//! The server over TCP, with an independent WebSocket client and processes of this machine.

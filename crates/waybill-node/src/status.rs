//! The status of a pod: computed from what the runtime has, and written to the API server.

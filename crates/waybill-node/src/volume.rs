//! The volumes of a pod: made before its containers start, kept up to date, and cleared away after it.

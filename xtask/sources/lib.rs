//! Empty: the dependencies of this package are read, not compiled.

//! Real servers, a faulty network and other scenery for tests.

//! Recorded exchanges against the simulator.

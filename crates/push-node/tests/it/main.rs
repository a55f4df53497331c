//! Nodes as others see them, over real connections on this machine.

mod broadcasts;
mod health;
mod house;
mod live;
mod nodes;
mod upkeep;

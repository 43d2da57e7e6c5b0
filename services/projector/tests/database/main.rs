//! Tests of projectors with real databases: a file of `SQLite`, and a `PostgreSQL` server of their own.

mod databases;
mod generations;
mod questions;
mod tables;
mod views;

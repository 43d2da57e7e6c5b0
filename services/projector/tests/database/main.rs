//! Tests of projectors with real databases: a file of `SQLite`, and a `PostgreSQL` server of their own.

mod databases;
mod generations;
mod queries;
mod tables;
mod views;

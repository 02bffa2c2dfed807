-- Several nodes share one gate: engine page section 8 (S8, S11) and section 5.

-- Which memory an epoch was loaded into (Redis' run id); a gate with another one is lost.
ALTER TABLE engine_shard ADD COLUMN memory TEXT NOT NULL DEFAULT '';

-- Heartbeats are counters, so that no clock step and no pause of the ledger ends a node (S11).
CREATE TABLE engine_node (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  name         TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  counter      INTEGER NOT NULL CHECK (counter >= 0),
  reaches_gate INTEGER NOT NULL CHECK (reaches_gate IN (0, 1)),
  started_at   INTEGER NOT NULL,
  ended_at     INTEGER
);

CREATE INDEX engine_node_alive ON engine_node (name) WHERE ended_at IS NULL;

-- Instants are microseconds since 1970 in UTC, money is the currency's smallest unit, grant ids are 16 bytes
-- in UUIDv7 order. docs: engine page sections 2, 7, 8; mall page section 2.

CREATE TABLE flash_sale (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  name           TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  state          TEXT    NOT NULL DEFAULT 'DRAFT'
                 CHECK (state IN ('DRAFT', 'OPEN', 'PAUSED', 'CLOSED', 'SETTLED')),
  opens_at       INTEGER NOT NULL,
  closes_at      INTEGER NOT NULL,
  limit_scope    TEXT    NOT NULL CHECK (limit_scope IN ('SALE', 'ITEM')),
  per_member     INTEGER NOT NULL CHECK (per_member BETWEEN 1 AND 1000),
  hold_s         INTEGER NOT NULL CHECK (hold_s BETWEEN 1 AND 3600),
  hold_max_s     INTEGER NOT NULL CHECK (hold_max_s BETWEEN hold_s AND 86400),
  resell_refunds INTEGER NOT NULL CHECK (resell_refunds IN (0, 1)),
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  CHECK (opens_at < closes_at)
);

-- The allotment's own row: the foreign key of every order repeats its limits, so that a copy which was loaded
-- wrongly somewhere else cannot widen them.
CREATE TABLE flash_sale_item (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  flash_sale_id INTEGER NOT NULL REFERENCES flash_sale (id),
  allotment     TEXT    NOT NULL UNIQUE,
  scope         TEXT    NOT NULL,
  name          TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  list_price    INTEGER NOT NULL CHECK (list_price >= 0),
  sale_price    INTEGER NOT NULL CHECK (sale_price BETWEEN 0 AND list_price),
  currency      TEXT    NOT NULL CHECK (length(currency) = 3),
  quantity      INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 10000000),
  per_member    INTEGER NOT NULL CHECK (per_member BETWEEN 1 AND 1000),
  sold          INTEGER NOT NULL DEFAULT 0 CHECK (sold >= 0 AND sold <= quantity),
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL,
  UNIQUE (allotment, quantity, per_member, scope)
);

CREATE INDEX flash_sale_item_by_sale ON flash_sale_item (flash_sale_id, id);
CREATE INDEX flash_sale_item_by_scope ON flash_sale_item (scope, id);

CREATE TABLE flash_sale_order (
  id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  allotment    TEXT    NOT NULL,
  scope        TEXT    NOT NULL,
  shard        INTEGER NOT NULL DEFAULT 0 CHECK (shard >= 0),
  epoch        INTEGER NOT NULL CHECK (epoch >= 1),
  member       INTEGER NOT NULL CHECK (member >= 1),
  slot         INTEGER CHECK (slot BETWEEN 1 AND slot_limit),
  slot_limit   INTEGER NOT NULL,
  nth          INTEGER CHECK (nth BETWEEN 1 AND per_member),
  per_member   INTEGER NOT NULL,
  member_key   TEXT    CHECK (length(member_key) BETWEEN 1 AND 255),
  state        TEXT    NOT NULL CHECK (state IN ('PENDING', 'PAID', 'EXPIRED', 'CANCELED', 'REJECTED')),
  reason       TEXT,
  merged_into  BLOB    CHECK (length(merged_into) = 16),
  amount       INTEGER NOT NULL CHECK (amount >= 0),
  recorded_at  INTEGER NOT NULL,
  expires_at   INTEGER NOT NULL,
  due_at       INTEGER NOT NULL,
  held_back_by BLOB    CHECK (length(held_back_by) = 16),
  held_back_until INTEGER,
  updated_at   INTEGER NOT NULL,
  FOREIGN KEY (allotment, slot_limit, per_member, scope)
    REFERENCES flash_sale_item (allotment, quantity, per_member, scope),
  CHECK ((state = 'REJECTED') = (slot IS NULL)),
  CHECK ((state = 'REJECTED') = (nth IS NULL)),
  CHECK ((state = 'REJECTED') = (reason IS NOT NULL)),
  CHECK (due_at >= expires_at),
  CHECK ((held_back_by IS NULL) = (held_back_until IS NULL)),
  CHECK (held_back_by IS NULL OR state = 'PENDING')
) WITHOUT ROWID;

CREATE UNIQUE INDEX flash_sale_order_slot ON flash_sale_order (allotment, slot)
  WHERE state IN ('PENDING', 'PAID');
CREATE UNIQUE INDEX flash_sale_order_member ON flash_sale_order (scope, member, nth)
  WHERE state IN ('PENDING', 'PAID');
CREATE UNIQUE INDEX flash_sale_order_key ON flash_sale_order (allotment, member, member_key)
  WHERE member_key IS NOT NULL AND state <> 'REJECTED';
CREATE INDEX flash_sale_order_due ON flash_sale_order (allotment, due_at) WHERE state = 'PENDING';
CREATE INDEX flash_sale_order_mine ON flash_sale_order (member, id);

-- Each state is entered at most once, so a change that happened twice cannot be stored (I8).
CREATE TABLE flash_sale_order_history (
  order_id   BLOB    NOT NULL REFERENCES flash_sale_order (id),
  to_state   TEXT    NOT NULL CHECK (to_state IN ('PENDING', 'PAID', 'EXPIRED', 'CANCELED', 'REJECTED')),
  from_state TEXT    CHECK (from_state <> to_state),
  reason     TEXT,
  at         INTEGER NOT NULL,
  PRIMARY KEY (order_id, to_state)
) WITHOUT ROWID;

-- The engine's own tables.

CREATE TABLE engine_shard (
  scope       TEXT    NOT NULL,
  shard       INTEGER NOT NULL,
  epoch       INTEGER NOT NULL CHECK (epoch >= 1),
  min_epoch   INTEGER NOT NULL CHECK (min_epoch BETWEEN 1 AND epoch),
  last_number INTEGER NOT NULL CHECK (last_number >= 0),
  gate        TEXT    NOT NULL,
  state       TEXT    NOT NULL CHECK (state IN ('OPEN', 'CLOSED', 'SETTLED')),
  PRIMARY KEY (scope, shard)
) WITHOUT ROWID;

CREATE TABLE engine_lease (
  allotment  TEXT    NOT NULL,
  shard      INTEGER NOT NULL,
  number     INTEGER NOT NULL CHECK (number >= 1),
  first_slot INTEGER NOT NULL CHECK (first_slot >= 1),
  last_slot  INTEGER NOT NULL CHECK (last_slot >= first_slot),
  PRIMARY KEY (allotment, shard, number)
) WITHOUT ROWID;

CREATE TABLE outbox (
  scope      TEXT    NOT NULL,
  shard      INTEGER NOT NULL,
  number     INTEGER NOT NULL,
  kind       TEXT    NOT NULL CHECK (kind IN ('RETURN', 'DEPARTURE', 'LOAD')),
  grant_id   BLOB    NOT NULL CHECK (length(grant_id) = 16),
  allotment  TEXT    NOT NULL,
  member     INTEGER NOT NULL,
  slot       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (scope, shard, number)
) WITHOUT ROWID;

CREATE TABLE reclaim_mark (
  grant_id   BLOB    NOT NULL PRIMARY KEY CHECK (length(grant_id) = 16),
  created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE dead_letter (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  grant_id   BLOB    NOT NULL,
  allotment  TEXT    NOT NULL,
  member     INTEGER NOT NULL,
  reason     TEXT    NOT NULL,
  created_at INTEGER NOT NULL
);

CREATE TABLE idempotency_answer (
  subject    TEXT    NOT NULL,
  route      TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  body_hash  BLOB    NOT NULL,
  status     INTEGER NOT NULL,
  body       TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (subject, route, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_answer_age ON idempotency_answer (created_at);

-- Payment.

CREATE TABLE payment_attempt (
  id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  order_id    BLOB    NOT NULL REFERENCES flash_sale_order (id),
  amount      INTEGER NOT NULL CHECK (amount >= 0),
  currency    TEXT    NOT NULL CHECK (length(currency) = 3),
  card_last4  TEXT    NOT NULL CHECK (length(card_last4) = 4),
  state       TEXT    NOT NULL CHECK (state IN ('OPEN', 'UNKNOWN', 'APPROVED', 'DECLINED', 'CANCELED')),
  gateway_ref TEXT    UNIQUE,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX payment_attempt_open ON payment_attempt (order_id) WHERE state IN ('OPEN', 'UNKNOWN');
CREATE INDEX payment_attempt_order ON payment_attempt (order_id);

-- At most one refund an attempt, and of its whole amount: what is refunded can never exceed what was taken.
CREATE TABLE refund (
  attempt_id BLOB    NOT NULL PRIMARY KEY REFERENCES payment_attempt (id),
  amount     INTEGER NOT NULL CHECK (amount >= 0),
  reason     TEXT    NOT NULL,
  state      TEXT    NOT NULL CHECK (state IN ('WANTED', 'DONE')),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX refund_wanted ON refund (created_at) WHERE state = 'WANTED';

-- The book of the payment simulator, which stands for the bank's: it must survive our crashes.
CREATE TABLE simulated_charge (
  attempt_id BLOB    NOT NULL PRIMARY KEY,
  amount     INTEGER NOT NULL,
  currency   TEXT    NOT NULL,
  state      TEXT    NOT NULL CHECK (state IN ('CHARGED', 'DECLINED', 'CANCELED', 'REFUNDED')),
  charges    INTEGER NOT NULL CHECK (charges >= 0),
  updated_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Administration.

CREATE TABLE audit_log (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  admin      TEXT    NOT NULL,
  action     TEXT    NOT NULL,
  target     TEXT    NOT NULL,
  detail     TEXT    NOT NULL,
  request_id TEXT    NOT NULL,
  at         INTEGER NOT NULL
);

CREATE TABLE job_run (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  job         TEXT    NOT NULL,
  started_at  INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  changed     INTEGER NOT NULL CHECK (changed >= 0)
);

-- +goose Up

-- By what sent messages are found: hashes of their recipients, words and so on.
-- Filled in the background, and could be made anew at any time.
-- owner: outbound
CREATE TABLE outbound_term (
  account BIGINT NOT NULL,
  term    BIGINT NOT NULL,
  message BIGINT NOT NULL,
  PRIMARY KEY (account, term, message)
) {clustered};

-- How far each pass over the messages has come: the first finds their terms,
-- the later ones those that were committed after the first had passed.
-- owner: outbound
CREATE TABLE outbound_pass (
  pass BIGINT NOT NULL PRIMARY KEY,
  upto BIGINT NOT NULL                 -- the last message that it has seen
) {clustered};
INSERT INTO outbound_pass (pass, upto) VALUES (0, 0), (1, 0), (2, 0);

-- Few deliveries are in these states, so the ordinary way pays nothing for it.
CREATE INDEX delivery_unusual ON delivery (account, state, message)
  WHERE state IN ('scheduled', 'deferred', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled');

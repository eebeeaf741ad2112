-- +goose Up

-- What came later of a delivery and did not change its state: a report that
-- another host still tries, an automatic reply. It stands in the timeline.
-- owner: queue
CREATE TABLE remark (
  message  BIGINT NOT NULL,
  n        BIGINT NOT NULL,
  mark     TEXT NOT NULL,              -- of the report, so that one which comes twice is told once
  at       BIGINT NOT NULL,
  outcome  TEXT NOT NULL,              -- deferred, delivered
  stage    TEXT NOT NULL,              -- delay, auto-reply
  code     BIGINT NOT NULL,
  enhanced TEXT NOT NULL,
  reply    TEXT NOT NULL,
  remote   TEXT NOT NULL,
  PRIMARY KEY (message, n, mark)
) {clustered};

-- +goose Up

-- The MTA-STS policies of other domains (RFC 8461), kept so that a restart
-- forgets none.
-- owner: route
CREATE TABLE sts_policy (
  domain     TEXT NOT NULL PRIMARY KEY,  -- A-labels, lower case
  id         TEXT NOT NULL,              -- as in its TXT record
  policy     TEXT NOT NULL,              -- as it was fetched
  fetched_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  refresh_at BIGINT NOT NULL,            -- when it is fetched again, or dropped
  used_at    BIGINT NOT NULL             -- when mail last went by it, give or take a day
);
CREATE INDEX sts_policy_refresh ON sts_policy (refresh_at);

-- What a submission says about TLS (RFC 8689): 'required' by the REQUIRETLS
-- parameter of MAIL, 'optional' by the field "TLS-Required: No", else ''.
ALTER TABLE outbound_message ADD COLUMN require_tls TEXT NOT NULL DEFAULT '';

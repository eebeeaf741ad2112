-- +goose Up

-- People who sign in to the dashboard. A person may belong to several accounts.
-- owner: user
CREATE TABLE dashboard_user (
  id         {id},
  email      TEXT NOT NULL UNIQUE,     -- as address.Key
  name       TEXT NOT NULL,
  password   TEXT NOT NULL,            -- PHC string
  totp       {blob},                   -- sealed; NULL: no second factor
  totp_step  BIGINT NOT NULL DEFAULT 0, -- of the last code taken, none of which counts twice
  created_at BIGINT NOT NULL
);

-- owner: user
CREATE TABLE dashboard_member (
  account    BIGINT NOT NULL,
  person     BIGINT NOT NULL REFERENCES dashboard_user (id),
  role       TEXT NOT NULL CHECK (role IN ('owner', 'member', 'reader')),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (account, person)
) {clustered};
CREATE INDEX dashboard_member_person ON dashboard_member (person, account);

-- owner: user
CREATE TABLE dashboard_session (
  id         {id},
  hash       {blob} NOT NULL UNIQUE,   -- of the token in the cookie
  person     BIGINT NOT NULL REFERENCES dashboard_user (id),
  account    BIGINT NOT NULL,          -- the one that is looked at
  halfway    BIGINT NOT NULL,          -- 1 while the second factor is still asked for
  address    TEXT NOT NULL,            -- of the client, at sign-in
  agent      TEXT NOT NULL,            -- User-Agent, at sign-in
  created_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX dashboard_session_person ON dashboard_session (person, id);
CREATE INDEX dashboard_session_expires ON dashboard_session (expires_at);

-- Links that work once: to set the service up, to join an account, to choose a
-- new password.
-- owner: user
CREATE TABLE dashboard_ticket (
  id         {id},
  hash       {blob} NOT NULL UNIQUE,   -- of the token in the link
  kind       TEXT NOT NULL CHECK (kind IN ('setup', 'invite', 'reset')),
  account    BIGINT NOT NULL,          -- to join; 0 for none
  person     BIGINT NOT NULL,          -- whose password; 0 for none
  email      TEXT NOT NULL,            -- who is invited; '' for whoever has the link
  role       TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX dashboard_ticket_account ON dashboard_ticket (account, id);
CREATE INDEX dashboard_ticket_expires ON dashboard_ticket (expires_at);

-- Codes to sign in without the second factor, each once.
-- owner: user
CREATE TABLE dashboard_recovery (
  person BIGINT NOT NULL REFERENCES dashboard_user (id),
  hash   {blob} NOT NULL,
  PRIMARY KEY (person, hash)
) {clustered};

-- Who did what.
-- owner: audit
CREATE TABLE dashboard_audit (
  id         {id},
  account    BIGINT NOT NULL,
  person     BIGINT NOT NULL,
  who        TEXT NOT NULL,            -- the e-mail address at that time
  what       TEXT NOT NULL,            -- a sentence
  address    TEXT NOT NULL,            -- of the client
  created_at BIGINT NOT NULL
);
CREATE INDEX dashboard_audit_account ON dashboard_audit (account, id);
CREATE INDEX dashboard_audit_created ON dashboard_audit (created_at);

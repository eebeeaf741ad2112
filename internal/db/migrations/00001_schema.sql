-- +goose Up

-- Ids are integers in the order of time (db.ID), times are microseconds since 1970,
-- JSON is TEXT. Each table belongs to the package that "owner" names. No other package
-- writes it, and only those that "reads" names read it. Fragments in braces differ by
-- engine (db.SQL).
--
-- Text in an index is {text}: PostgreSQL compares it byte by byte, as SQLite does. An
-- index in the order of a language is valid only until an upgrade of the operating
-- system changes that order.

-- owner: lease
CREATE TABLE node (
  id      {id},           -- 1..1023, part of each id that the node generates
  name    {text} NOT NULL UNIQUE,
  seen_at BIGINT NOT NULL -- ids of earlier times may be in use
);

-- The lease of a running node. Rows that the node works on have its id.
-- owner: lease
-- reads: webhook, migration, mailbox
CREATE TABLE lease (
  id         {id},
  node       BIGINT NOT NULL REFERENCES node (id),
  holder     TEXT NOT NULL,  -- data folder, whose lock proves that the former process has ended
  expires_at BIGINT NOT NULL -- by the database's clock
);

-- Leader jobs: work that one node does for all, such as numbering events.
-- owner: lease
CREATE TABLE leader_job (
  name       {text} NOT NULL PRIMARY KEY,
  lease      BIGINT NOT NULL,
  fence      BIGINT NOT NULL, -- fencing id, rises when another node takes over
  expires_at BIGINT NOT NULL
);

-- owner: account
-- reads: migration, backup, mailbox, domain
CREATE TABLE account (
  id         {id},
  email      {text} NOT NULL UNIQUE,
  name       TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at BIGINT NOT NULL
);
CREATE INDEX account_suspended ON account (id) WHERE status = 'suspended';

-- owner: account
CREATE TABLE api_key (
  id                  {id},
  account             BIGINT NOT NULL REFERENCES account (id),
  name                TEXT NOT NULL,
  hint                TEXT NOT NULL,   -- first characters, for recognition
  hash                {blob} NOT NULL UNIQUE,
  scopes              TEXT NOT NULL,   -- separated by blanks
  domain              TEXT NOT NULL,   -- the only domain that it may act for; '' for all
  networks            TEXT NOT NULL,   -- client networks, separated by blanks; '' for all
  expires_at          BIGINT NOT NULL, -- 0 for never
  last_used_at        BIGINT NOT NULL,
  created_at          BIGINT NOT NULL,
  -- Limits of this key, within those of its account; 0 for none.
  requests_per_second BIGINT NOT NULL DEFAULT 0,
  burst               BIGINT NOT NULL DEFAULT 0,
  sends_per_hour      BIGINT NOT NULL DEFAULT 0,
  sends_per_day       BIGINT NOT NULL DEFAULT 0,
  recipients_per_day  BIGINT NOT NULL DEFAULT 0,
  -- When the key was sent over HTTP without TLS, where others may have read it; 0 for never.
  exposed_at          BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX api_key_account ON api_key (account, id);

-- Several accounts may claim a name; at most one owns it.
-- owner: domain
-- reads: mailbox, migration
CREATE TABLE domain (
  id                 {id},
  account            BIGINT NOT NULL REFERENCES account (id),
  name               {text} NOT NULL,           -- A-labels, lower case
  status             TEXT NOT NULL CHECK (status IN ('pending', 'verified', 'degraded', 'failed', 'suspended')),
  owned              BOOLEAN NOT NULL,          -- whether ownership is proven, and no other account's
  token              TEXT NOT NULL,             -- value of the OWNERSHIP record
  receives           BOOLEAN NOT NULL,          -- whether its MX is this service
  sends              BOOLEAN NOT NULL,          -- whether one of its DKIM keys is published
  aligned            BOOLEAN NOT NULL,          -- whether MX and SPF allow it as return path
  records            TEXT NOT NULL,             -- JSON: result of the last check of each record
  checked_at         BIGINT NOT NULL,
  next_check_at      BIGINT NOT NULL,
  checks             BIGINT NOT NULL,           -- since the last change, for the back-off
  mismatch_since     BIGINT NOT NULL,           -- a verified domain degrades a day after this; 0 for none
  contested_since    BIGINT NOT NULL,           -- another claimant's TXT is published, the owner's is not; 0 for none
  verified_at        BIGINT NOT NULL,
  created_at         BIGINT NOT NULL,
  dkim_rotation_days BIGINT NOT NULL DEFAULT 0, -- 0: no automatic rotation
  -- Treatment of mail that fails its author's DMARC policy: enforce (as the policy says),
  -- junk (Junk at most), off.
  dmarc_enforcement  TEXT NOT NULL DEFAULT 'enforce',
  -- Treatment of spam: enforce (as the filter says), junk (Junk at most), off.
  spam_filtering     TEXT NOT NULL DEFAULT 'enforce',
  -- Mode of the domain's own MTA-STS policy.
  mta_sts            TEXT NOT NULL DEFAULT 'testing',
  -- When an operator suspended the domain. Its checks continue and keep status current,
  -- for when the suspension ends.
  suspended_at       BIGINT NOT NULL DEFAULT 0, -- 0: it is not
  UNIQUE (account, name)
);
CREATE UNIQUE INDEX domain_holder ON domain (name) WHERE owned;
CREATE INDEX domain_account ON domain (account, id);
CREATE INDEX domain_name ON domain (name);
CREATE INDEX domain_check ON domain (next_check_at);
-- Each node reads the suspended ones every few seconds.
CREATE INDEX domain_suspended ON domain (id) WHERE suspended_at > 0;

-- owner: domain
CREATE TABLE dkim_key (
  id          {id},
  domain      BIGINT NOT NULL REFERENCES domain (id) ON DELETE CASCADE,
  selector    {text} NOT NULL,
  algorithm   {text} NOT NULL CHECK (algorithm IN ('rsa', 'ed25519')),
  private_key {blob} NOT NULL,                -- sealed
  record      TEXT NOT NULL,                  -- the TXT value to publish
  seen        BOOLEAN NOT NULL,               -- whether it is in DNS, by the last check that got an answer
  created_at  BIGINT NOT NULL,
  -- A key is published before its first use, and for a while after its replacement.
  state       TEXT NOT NULL DEFAULT 'active', -- pending, active, retiring, retired
  imported    BOOLEAN NOT NULL DEFAULT FALSE, -- whether the customer provided it
  active_at   BIGINT NOT NULL DEFAULT 0,      -- first seen in DNS; 0 for never
  until_at    BIGINT NOT NULL DEFAULT 0,      -- end of retiring, or beginning of retired
  UNIQUE (domain, selector)
);
CREATE UNIQUE INDEX dkim_key_pending ON dkim_key (domain, algorithm) WHERE state = 'pending';
CREATE INDEX dkim_key_domain ON dkim_key (domain, id);

-- owner: mailbox
-- reads: migration, spam
CREATE TABLE mailbox (
  id            {id},
  account       BIGINT NOT NULL REFERENCES account (id),
  domain        BIGINT NOT NULL REFERENCES domain (id),
  local_part    TEXT NOT NULL,   -- as given
  address       {text} NOT NULL, -- folded, for look-ups (address.Key)
  display_name  TEXT NOT NULL,
  password      TEXT NOT NULL,   -- argon2id
  generation    BIGINT NOT NULL, -- rises when cached logins become invalid
  quota         BIGINT NOT NULL, -- bytes
  status        TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at    BIGINT NOT NULL,
  deleted_at    BIGINT NOT NULL, -- 0: not deleted; restorable for 30 days
  -- Forwarding addresses, one a line; whether a copy stays here; and whether a vacation
  -- reply is enabled.
  forward_to    TEXT NOT NULL DEFAULT '',
  keep_copy     BOOLEAN NOT NULL DEFAULT TRUE,
  auto_reply    BOOLEAN NOT NULL DEFAULT FALSE,
  -- Level of the spam filter: off, lenient, normal, strict.
  spam_filter   TEXT NOT NULL DEFAULT 'normal',
  -- Verifiers of SCRAM-SHA-256 (RFC 5803 §2), separated by blanks; '' for none, and while
  -- the operator does not offer SCRAM.
  scram         TEXT NOT NULL DEFAULT '',
  -- Password hash that scram belongs to. After a change of the password alone, scram is
  -- not valid.
  scram_of      TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX mailbox_live ON mailbox (domain, address) WHERE deleted_at = 0;
CREATE INDEX mailbox_address ON mailbox (address);
CREATE INDEX mailbox_deleted ON mailbox (deleted_at) WHERE deleted_at > 0;
CREATE INDEX mailbox_scram ON mailbox (id) WHERE scram <> '';
-- For lists of existing and deleted mailboxes, by account and by domain.
CREATE INDEX mailbox_account_live ON mailbox (account, deleted_at, id);
CREATE INDEX mailbox_domain_live ON mailbox (domain, deleted_at, id);
CREATE INDEX mailbox_account_deleted ON mailbox (account, id) WHERE deleted_at > 0;
CREATE INDEX mailbox_domain_deleted ON mailbox (domain, id) WHERE deleted_at > 0;

-- owner: mailbox
-- reads: folder
CREATE TABLE mailbox_usage (
  mailbox     {id},
  bytes       BIGINT NOT NULL,
  messages    BIGINT NOT NULL,
  over_since  BIGINT NOT NULL, -- when RCPT was first rejected because the mailbox is full; 0 for none
  -- Warning about a nearly full mailbox: 0 none, 1 due, 2 sent.
  nearly_full BIGINT NOT NULL DEFAULT 0,
  -- A message counts as at least 1,024 bytes (mailbox.MinCharge). surcharge is what small
  -- messages count beyond their sizes; bytes is the sum of sizes.
  surcharge   BIGINT NOT NULL DEFAULT 0
) {hot};
CREATE INDEX mailbox_usage_nearly_full ON mailbox_usage (mailbox) WHERE nearly_full = 1;

-- owner: folder
CREATE TABLE folder (
  id               {id},
  mailbox          BIGINT NOT NULL REFERENCES mailbox (id),
  name             {text} NOT NULL, -- UTF-8, '/' between levels
  special_use      {text} NOT NULL, -- special use (RFC 6154), such as '\Sent'; '' for none
  uidvalidity      BIGINT NOT NULL,
  uid_next         BIGINT NOT NULL,
  modseq           BIGINT NOT NULL,
  changed_modseq   BIGINT NOT NULL, -- modseq of the last change other than an arrival
  messages         BIGINT NOT NULL,
  unseen           BIGINT NOT NULL,
  bytes            BIGINT NOT NULL,
  recent_uid       BIGINT NOT NULL, -- first UID that no session has seen
  log_start_modseq BIGINT NOT NULL, -- folder_change lacks changes up to this modseq
  surcharge        BIGINT NOT NULL DEFAULT 0,
  -- 2 * uid_next - messages grows by one with each arrival and each removal, and so does
  -- surcharge_mark when surcharge is updated. Where the two differ, folder.Recount counts
  -- the folder again.
  surcharge_mark   BIGINT NOT NULL DEFAULT 0,
  UNIQUE (mailbox, name)
) {hot};
CREATE UNIQUE INDEX folder_special ON folder (mailbox, special_use) WHERE special_use <> '';

-- Deleted folders, until their messages are deleted and no new folder can have the same
-- UIDVALIDITY.
-- owner: folder
CREATE TABLE deleted_folder (
  folder      {id},
  mailbox     BIGINT NOT NULL,
  uidvalidity BIGINT NOT NULL
);
CREATE INDEX deleted_folder_mailbox ON deleted_folder (mailbox);

-- owner: folder
CREATE TABLE subscription (
  mailbox BIGINT NOT NULL REFERENCES mailbox (id),
  name    {text} NOT NULL,
  PRIMARY KEY (mailbox, name)
) {clustered};

-- A stored message. It never changes. Several folders of its mailbox may show it.
-- owner: folder
CREATE TABLE message (
  id               {id},
  mailbox          BIGINT NOT NULL,
  blob             BIGINT NOT NULL,
  size             BIGINT NOT NULL,
  outbound         BIGINT NOT NULL,            -- outbound_message that was delivered; 0 for none
  message_id       TEXT NOT NULL,
  envelope         {blob} NOT NULL,            -- in the form of IMAP
  structure        {blob} NOT NULL,            -- the index of its parts (message.Index)
  -- Messages that clients append belong to no thread.
  account          BIGINT NOT NULL DEFAULT 0,
  domain           BIGINT NOT NULL DEFAULT 0,
  thread_id        {text} NOT NULL DEFAULT '',
  reference        BIGINT NOT NULL DEFAULT 0,  -- hash of its Message-ID; never 0 in a thread
  arrival_id       BIGINT NOT NULL DEFAULT 0,  -- the same for all copies of a received message
  -- Results of the checks of received mail, such as "spf=pass dkim=fail"; others are none.
  check_results    TEXT NOT NULL DEFAULT '',
  -- References of a message, for IMAP's THREAD=REFERENCES, stored when a client first asks.
  reply_references {blob} NOT NULL DEFAULT '', -- hashes of Message-IDs, the nearest last; empty: not read yet
  -- Service mail may contain a link that signs a person in. Only IMAP clients of the
  -- mailbox get its text.
  private          BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX message_thread ON message (account, thread_id, id) WHERE thread_id <> '';
CREATE INDEX message_reference ON message (account, reference, arrival_id, id) WHERE reference <> 0;
-- For lists of a mailbox's messages in all folders, newest first.
CREATE INDEX message_mailbox ON message (mailbox, id);
-- For lists of an account's received mail in all mailboxes, newest first.
CREATE INDEX message_account ON message (account, id) WHERE account <> 0;

-- owner: folder
-- reads: spam
CREATE TABLE folder_message (
  folder        BIGINT NOT NULL,
  uid           BIGINT NOT NULL,
  message       BIGINT NOT NULL,
  flags         BIGINT NOT NULL,
  keywords      TEXT NOT NULL, -- sorted, separated by blanks
  modseq        BIGINT NOT NULL,
  size          BIGINT NOT NULL,
  internal_date BIGINT NOT NULL,
  saved_at      BIGINT NOT NULL,
  PRIMARY KEY (folder, uid)
) {clustered} {hot};
CREATE INDEX folder_message_message ON folder_message (message);
-- PostgreSQL finds messages by a list of UIDs one by one, or by reading the whole folder,
-- which is faster in folders of a dozen messages. With statistics of the average folder it
-- read a million rows for sixteen. So it gets none, except that UIDs differ, and decides by
-- the size of the table.
{postgres}ALTER TABLE folder_message ALTER COLUMN folder SET STATISTICS 0;
{postgres}ALTER TABLE folder_message ALTER COLUMN uid SET (n_distinct = -1);

-- Changes of each command, for QRESYNC. Arrivals are not logged, as their UIDs show them.
-- owner: folder
CREATE TABLE folder_change (
  folder   BIGINT NOT NULL,
  modseq   BIGINT NOT NULL,
  vanished BOOLEAN NOT NULL, -- else the flags changed
  uids     TEXT NOT NULL,    -- a UID set such as 1:5,9
  PRIMARY KEY (folder, modseq)
) {clustered};

-- Messages that were removed from a folder, to be deleted if no other folder shows them.
-- owner: folder
CREATE TABLE expunged_message (
  message BIGINT NOT NULL PRIMARY KEY,
  at      BIGINT NOT NULL
) {clustered};
CREATE INDEX expunged_message_at ON expunged_message (at);

-- Deliveries that local delivery has filed. If their outcome is lost, they are not filed
-- again. Deleted after some days.
-- owner: inbound
CREATE TABLE filed_delivery (
  message BIGINT NOT NULL, -- the outbound_message
  n       BIGINT NOT NULL,
  at      BIGINT NOT NULL,
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX filed_delivery_at ON filed_delivery (at);

-- The content of a message: bytes in the row, then the file. Small messages have no file.
-- Rows of several recipients may share one.
-- owner: blob
-- reads: folder, db
CREATE TABLE blob (
  id    {id},
  size  BIGINT NOT NULL, -- of row and file
  file  BIGINT NOT NULL, -- name of the file in the blob store; 0 for none
  bytes {blob} NOT NULL
);
CREATE INDEX blob_file ON blob (file) WHERE file > 0;
-- Messages of up to 8 KB stay in their row, without compression: chunks and compression
-- cost more than all other work of storing a message.
{postgres} ALTER TABLE blob SET (toast_tuple_target = 8160);
{postgres} ALTER TABLE blob ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- owner: outbound
CREATE TABLE outbound_message (
  id               {id},
  account          BIGINT NOT NULL,
  domain           BIGINT NOT NULL,
  mailbox          BIGINT NOT NULL,           -- sender's mailbox; 0 for the API
  sender           TEXT NOT NULL,             -- MAIL FROM of a submission; '' is the null sender
  returns_to       TEXT NOT NULL,             -- domain of signed return paths; '' for a submission
  header_from      TEXT NOT NULL,
  subject          TEXT NOT NULL,
  message_id       TEXT NOT NULL,
  thread_id        {text} NOT NULL,
  metadata         TEXT NOT NULL,             -- JSON object
  tags             TEXT NOT NULL DEFAULT '',  -- separated by spaces
  utf8        BOOLEAN NOT NULL,        -- needs SMTPUTF8
  eight_bit        BOOLEAN NOT NULL,          -- the body holds bytes above 127
  size             BIGINT NOT NULL,
  blob             BIGINT NOT NULL,
  expires_at       BIGINT NOT NULL,
  created_at       BIGINT NOT NULL,
  -- Template of API mail; 0 for none.
  template         BIGINT NOT NULL DEFAULT 0,
  template_version BIGINT NOT NULL DEFAULT 0,
  -- Threads: which messages of an account answer each other. A message that
  -- arrives, or that is submitted, is found by the hash of its Message-ID; mail of
  -- the API by its id, which is in its Message-ID.
  reference        BIGINT NOT NULL DEFAULT 0, -- hash of a Message-ID that is not made of the id; else 0
  ret              TEXT NOT NULL DEFAULT '',  -- RET: HDRS, FULL
  envid            TEXT NOT NULL DEFAULT '',  -- ENVID, decoded
  -- What a submission says about TLS (RFC 8689): 'required' by the REQUIRETLS
  -- parameter of MAIL, 'optional' by the field "TLS-Required: No", else ''.
  require_tls      TEXT NOT NULL DEFAULT '',
  -- Alias or mailbox that forwarded a received message; 0 for mail sent from here.
  forwarded        BIGINT NOT NULL DEFAULT 0,
  private          BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX outbound_message_account ON outbound_message (account, id);
CREATE INDEX outbound_message_thread ON outbound_message (account, thread_id, id) WHERE thread_id <> '';
CREATE INDEX outbound_message_reference ON outbound_message (account, reference, id) WHERE reference <> 0;

-- owner: queue
-- reads: inbound
CREATE TABLE delivery (
  message            BIGINT NOT NULL,
  n                  BIGINT NOT NULL,                -- 0…, in the order of recipients
  account            BIGINT NOT NULL,
  recipient          TEXT NOT NULL,
  kind               TEXT NOT NULL,                  -- to, cc, bcc; envelope (submission)
  destination        {text} NOT NULL,                -- the recipient's domain, A-labels
  state              {text} NOT NULL,
  due_at             BIGINT NOT NULL,
  expires_at         BIGINT NOT NULL,
  lease              BIGINT,                         -- node's lease; NULL for none
  attempts           BIGINT NOT NULL,
  sequence           BIGINT NOT NULL,                -- of its events
  code               BIGINT NOT NULL,                -- the last reply
  enhanced           TEXT NOT NULL,
  reply              TEXT NOT NULL,
  remote_host        TEXT NOT NULL,                  -- host of the reply, 'local' or 'sandbox'
  updated_at         BIGINT NOT NULL,
  offers_unsubscribe BOOLEAN NOT NULL DEFAULT FALSE, -- whether the message has an unsubscribe link
  -- Delivery status notifications that the sender requested (RFC 3461).
  notify             BIGINT NOT NULL DEFAULT 0,      -- NOTIFY as given, plus 16 times the part that we report
  orcpt              TEXT NOT NULL DEFAULT '',       -- ORCPT as "rfc822;a@b", decoded
  delay_report_at    BIGINT NOT NULL DEFAULT 0,      -- when to report the delay; 0: never, or reported
  -- A held delivery has lease 0, so that indexes of due deliveries skip it. If a node has
  -- leased it, it is marked, and its lease becomes 0 when the node releases it.
  hold               BIGINT NOT NULL DEFAULT 0,      -- queue_hold that holds it; 1: held by itself; 0: not held
  held_at            BIGINT NOT NULL DEFAULT 0,      -- since when; 0: not held
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX delivery_due ON delivery (due_at) WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_lease ON delivery (lease, message, n) WHERE lease IS NOT NULL;
-- Few deliveries are in these states, so the usual path does not write to this index.
CREATE INDEX delivery_unusual ON delivery (account, state, message)
  WHERE state IN ('scheduled', 'deferred', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled');
CREATE INDEX delivery_late ON delivery (delay_report_at) WHERE lease IS NULL AND delay_report_at > 0 AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_marked ON delivery (lease, message, n) WHERE lease > 0 AND hold > 0;
CREATE INDEX delivery_destination ON delivery (destination, due_at, message, n) WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_account ON delivery (account, message, n) WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_held ON delivery (destination, message, n) WHERE lease = 0;
CREATE INDEX delivery_held_account ON delivery (account, message, n) WHERE lease = 0;
CREATE INDEX delivery_hold ON delivery (hold, message, n) WHERE lease = 0;

-- owner: queue
CREATE TABLE attempt (
  message     BIGINT NOT NULL,
  n           BIGINT NOT NULL,
  attempt     BIGINT NOT NULL, -- 1…
  started_at  BIGINT NOT NULL,
  duration_us BIGINT NOT NULL, -- how long it took
  outcome     TEXT NOT NULL,   -- delivered, deferred, bounced, failed
  host        TEXT NOT NULL,
  ip          TEXT NOT NULL,
  tls         TEXT NOT NULL,
  stage       TEXT NOT NULL,
  code        BIGINT NOT NULL,
  enhanced    TEXT NOT NULL,
  reply       TEXT NOT NULL,
  transcript  TEXT NOT NULL,
  PRIMARY KEY (message, n, attempt)
) {clustered};

-- Events. Each is written in the transaction that caused it; the sequencer assigns its
-- position afterwards.
-- owner: event
-- reads: webhook, stat
CREATE TABLE event (
  id         {id},
  position   BIGINT,
  account    BIGINT NOT NULL,
  kind       {text} NOT NULL,
  message    BIGINT NOT NULL,            -- outbound_message; 0 for none
  data       TEXT NOT NULL,              -- JSON
  created_at BIGINT NOT NULL,
  -- Subjects of the event, for lists, webhooks and statistics.
  domain     BIGINT NOT NULL DEFAULT 0,  -- of the sender, the mailbox, or itself; 0 for none
  mailbox    BIGINT NOT NULL DEFAULT 0,  -- 0 for none
  recipient  {text} NOT NULL DEFAULT '', -- as suppressions are keyed; '' for none
  status     TEXT NOT NULL DEFAULT '',   -- data.status; '' for none
  tags       TEXT NOT NULL DEFAULT '',   -- of the sent message, separated by spaces
  -- The excerpt of an inbound_email event is added to data when the event is first read.
  -- Until then this is the message; 0 afterwards, and for all other events.
  content    BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX event_position ON event (position) WHERE position IS NOT NULL;
CREATE INDEX event_account ON event (account, position) WHERE position IS NOT NULL;
CREATE INDEX event_new ON event (id) WHERE position IS NULL;
CREATE INDEX event_message ON event (message) WHERE message > 0;
CREATE INDEX event_recipient ON event (account, recipient, position) WHERE recipient <> '' AND position IS NOT NULL;
CREATE INDEX event_kind ON event (account, kind, position) WHERE position IS NOT NULL;
-- The events of a domain and of a mailbox, by kind: each list reads an index that leads
-- with its filter. Both gain a row when an event gets its position, not before.
CREATE INDEX event_domain ON event (domain, kind, position) WHERE domain > 0 AND position IS NOT NULL;
CREATE INDEX event_mailbox ON event (mailbox, kind, position) WHERE mailbox > 0 AND position IS NOT NULL;

-- Responses to requests with an Idempotency-Key, for a day.
-- owner: idempotency
CREATE TABLE idempotency (
  account    BIGINT NOT NULL,
  path       {text} NOT NULL, -- of the operation, such as /outbound/send
  key        {text} NOT NULL, -- as the client gave it
  token      BIGINT NOT NULL, -- random; of the request that stored the row
  sum        {blob} NOT NULL, -- SHA-256 of the request's content; '' while it is unknown
  response   {blob} NOT NULL, -- sealed; '' until the request has ended
  pending_until BIGINT NOT NULL, -- until then, a request without a response is taken to be in progress
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (account, path, key)
) {clustered};
CREATE INDEX idempotency_expires ON idempotency (expires_at);

-- owner: template
CREATE TABLE template (
  id         {id},
  account    BIGINT NOT NULL REFERENCES account (id),
  name       TEXT NOT NULL,
  alias      {text} NOT NULL, -- '' for none
  latest     BIGINT NOT NULL, -- the number of the newest version
  published  BIGINT NOT NULL, -- that of the version which is sent
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  -- Size of all versions; limited for each account.
  bytes      BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX template_account ON template (account, id);
CREATE UNIQUE INDEX template_alias ON template (account, alias) WHERE alias <> '';

-- A version never changes.
-- owner: template
CREATE TABLE template_version (
  template   BIGINT NOT NULL REFERENCES template (id) ON DELETE CASCADE,
  version    BIGINT NOT NULL, -- 1…
  subject    TEXT NOT NULL,
  html       TEXT NOT NULL,
  text       TEXT NOT NULL,
  inline_css BOOLEAN NOT NULL,
  variables  TEXT NOT NULL,   -- JSON
  created_at BIGINT NOT NULL,
  bytes      BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (template, version)
) {clustered};

-- Addresses that get no API mail of an account. Scope 'all' stops all messages,
-- 'unsubscribable' those with an unsubscribe link. An address may have one of each; the
-- first reason stays.
-- owner: suppression
CREATE TABLE suppression (
  id         {id},
  account    BIGINT NOT NULL,
  address    {text} NOT NULL,  -- folded, for look-ups (address.Key)
  scope      {text} NOT NULL CHECK (scope IN ('all', 'unsubscribable')),
  reason     {text} NOT NULL CHECK (reason IN ('bounce', 'complaint', 'unsubscribe', 'manual')),
  message    BIGINT NOT NULL,  -- the outbound_message that led to it; 0 for none
  n          BIGINT NOT NULL,
  diagnostic TEXT NOT NULL,
  simulated  BOOLEAN NOT NULL, -- of a simulator address: listed, without effect
  created_at BIGINT NOT NULL,
  UNIQUE (account, address, scope)
);
CREATE INDEX suppression_account ON suppression (account, id);
CREATE INDEX suppression_reason ON suppression (account, reason, id);

-- Complaints that the simulator will send.
-- owner: relay
CREATE TABLE simulated_complaint (
  message BIGINT NOT NULL,
  n       BIGINT NOT NULL,
  due_at  BIGINT NOT NULL,
  until   BIGINT NOT NULL, -- no retry after this
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX simulated_complaint_due ON simulated_complaint (due_at);

-- Search index of sent messages: hashes of recipients, words and so on. Built in the
-- background; it could be rebuilt at any time.
-- owner: outbound
CREATE TABLE outbound_term (
  account BIGINT NOT NULL,
  term    BIGINT NOT NULL,
  message BIGINT NOT NULL,
  PRIMARY KEY (account, term, message)
) {clustered};

-- Progress of the passes over sent messages. The first indexes their terms, the later ones
-- find messages that were committed after an earlier pass.
-- owner: outbound
CREATE TABLE outbound_index_progress (
  pass     BIGINT NOT NULL PRIMARY KEY,
  position BIGINT NOT NULL -- last message seen
) {clustered};
INSERT INTO outbound_index_progress (pass, position) VALUES (0, 0), (1, 0), (2, 0);

-- Reports that senders of submissions are still to get. Written in the commit of the
-- outcome, deleted in the commit that files the report.
-- owner: queue
CREATE TABLE notice (
  id          {id},
  message     BIGINT NOT NULL,
  n           BIGINT NOT NULL,
  action      TEXT NOT NULL CHECK (action IN ('failed', 'delayed', 'delivered', 'relayed')),
  recipient   TEXT NOT NULL,
  orcpt       TEXT NOT NULL,
  code        BIGINT NOT NULL, -- reply of the host
  enhanced    TEXT NOT NULL,
  reply       TEXT NOT NULL,
  remote_host TEXT NOT NULL,
  next_at     BIGINT NOT NULL, -- next attempt of a delayed delivery
  expires_at  BIGINT NOT NULL, -- end of attempts
  at          BIGINT NOT NULL, -- when it happened
  due_at      BIGINT NOT NULL, -- when to file the report
  UNIQUE (message, n, id)
);
CREATE INDEX notice_due ON notice (due_at);

-- MTA-STS policies of other domains (RFC 8461), which outlive a restart.
-- owner: route
CREATE TABLE sts_policy (
  domain     {text} NOT NULL PRIMARY KEY, -- A-labels, lower case
  id         TEXT NOT NULL,               -- as in its TXT record
  policy     TEXT NOT NULL,               -- as it was fetched
  fetched_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  refresh_at BIGINT NOT NULL,             -- when to fetch it again, or delete it
  used_at    BIGINT NOT NULL              -- last use, to about a day
);
CREATE INDEX sts_policy_refresh ON sts_policy (refresh_at);

-- An operator's holds, which apply to future mail, too. Held deliveries have the hold's id.
-- owner: queue
CREATE TABLE queue_hold (
  id         {id},
  kind       {text} NOT NULL CHECK (kind IN ('destination', 'account')),
  target     {text} NOT NULL, -- the destination, or the account's id
  reason     TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  UNIQUE (kind, target)
);

-- Destinations that an operator wants retried: nodes end their back-off. Rows last an hour.
-- owner: queue
CREATE TABLE retry_request (
  destination {text} NOT NULL PRIMARY KEY,
  at          BIGINT NOT NULL
) {clustered};
CREATE INDEX retry_request_at ON retry_request (at);

-- An account's webhooks. A deleted one is hidden, and stays until its deliveries are
-- deleted.
-- owner: webhook
CREATE TABLE webhook (
  id          {id},
  account     BIGINT NOT NULL REFERENCES account (id),
  url         TEXT NOT NULL,
  description TEXT NOT NULL,
  kinds       TEXT NOT NULL,   -- ' bounce complaint ', or ' all '
  domains     TEXT NOT NULL,   -- ids ' 1 2 '; '' in this and the next for any
  mailboxes   TEXT NOT NULL,   -- the same
  status      TEXT NOT NULL CHECK (status IN ('enabled', 'disabled', 'deleted')),
  reason      TEXT NOT NULL,   -- why it is disabled: manual, gone, failing; '' while it is not
  status_at   BIGINT NOT NULL,
  secrets     {blob} NOT NULL, -- sealed JSON: the secret, and older ones that still sign
  old_until   BIGINT NOT NULL, -- when the older secrets end; 0 for none
  revision    BIGINT NOT NULL, -- rises with every change
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  -- Whether inbound_email events include header and text of the message. Only users who may
  -- read mail can turn that on.
  content     BOOLEAN NOT NULL DEFAULT TRUE
);
CREATE INDEX webhook_account ON webhook (account, id) WHERE status IN ('enabled', 'disabled');
CREATE INDEX webhook_enabled ON webhook (account) WHERE status = 'enabled';
CREATE INDEX webhook_deleted ON webhook (id) WHERE status = 'deleted';

-- State of the dispatcher of a webhook, which runs on one node at a time.
-- owner: webhook
CREATE TABLE webhook_dispatch (
  webhook       {id},
  lease         BIGINT,          -- node's lease; NULL for none
  due_at        BIGINT,          -- when to dispatch, while no node does; NULL: nothing due
  arrivals      BIGINT NOT NULL, -- rises with each batch of deliveries: a node releases only after it has seen all
  generation    BIGINT NOT NULL, -- rises when the columns below are reset
  failing_since BIGINT NOT NULL, -- the first failure since the last success; 0 for none
  level         BIGINT NOT NULL, -- number of failed trials in a row, each after a pause
  paused_until  BIGINT NOT NULL, -- no attempt before this; 0 for none
  resumes       BIGINT NOT NULL  -- rises when somebody ends the pause
) {hot};
CREATE INDEX webhook_dispatch_due ON webhook_dispatch (due_at) WHERE lease IS NULL AND due_at IS NOT NULL;
CREATE INDEX webhook_dispatch_lease ON webhook_dispatch (lease, webhook) WHERE lease IS NOT NULL;

-- Delivery of one event to one webhook. The id is the event's.
-- owner: webhook
CREATE TABLE webhook_delivery (
  webhook    BIGINT NOT NULL,
  id         BIGINT NOT NULL,
  kind       TEXT NOT NULL,
  state      {text} NOT NULL,
  attempts   BIGINT NOT NULL,
  tries      BIGINT NOT NULL, -- position in the retry schedule: attempts since the last reset
  due_at     BIGINT NOT NULL, -- 0: before all others, since somebody redelivered it
  code       BIGINT NOT NULL, -- HTTP status of the last attempt; 0 for none
  error      TEXT NOT NULL,   -- of the last attempt; '' for none
  body       TEXT NOT NULL,   -- body of a test; others are generated from the event
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  -- webhook.content at the time of the event, so that a later change has no effect.
  content    BOOLEAN,
  PRIMARY KEY (webhook, id)
) {clustered} {hot};
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook, due_at, id) WHERE state = 'pending';
CREATE INDEX webhook_delivery_state ON webhook_delivery (webhook, state, id);

-- owner: webhook
CREATE TABLE webhook_attempt (
  webhook     BIGINT NOT NULL,
  id          BIGINT NOT NULL,
  n           BIGINT NOT NULL, -- 1…
  started_at  BIGINT NOT NULL,
  duration_us BIGINT NOT NULL, -- how long it took
  headers     TEXT NOT NULL,   -- JSON: what was sent
  code        BIGINT NOT NULL, -- HTTP status; 0 for no answer
  error       TEXT NOT NULL,   -- '' for none
  error_text  TEXT NOT NULL,   -- the error in words
  response    TEXT NOT NULL,   -- beginning of the response body
  next_at     BIGINT NOT NULL, -- next attempt; 0 for none
  PRIMARY KEY (webhook, id, n)
) {clustered};

-- Last event that has webhook deliveries.
-- owner: webhook
CREATE TABLE webhook_position (
  id       {id}, -- 1
  position BIGINT NOT NULL
) {hot};
INSERT INTO webhook_position (id, position) VALUES (1, 0);

-- Limits of an account that differ from the default; -1: default, 0: none.
-- owner: quota
CREATE TABLE quota_account (
  account             {id} REFERENCES account (id),
  requests_per_second BIGINT NOT NULL,
  burst               BIGINT NOT NULL, -- requests at once
  sends_per_hour      BIGINT NOT NULL,
  sends_per_day       BIGINT NOT NULL,
  recipients_per_day  BIGINT NOT NULL,
  storage_mb          BIGINT NOT NULL  -- limit of the sum of its mailboxes' quotas
);

-- Use of a limit in an hour or a day. Nodes reserve blocks and spend them in memory. Past
-- windows are deleted when the account begins a new day.
-- owner: quota
CREATE TABLE quota_window (
  account   BIGINT NOT NULL,
  key       BIGINT NOT NULL, -- api_key with a limit of its own; 0: account's limit
  name      {text} NOT NULL, -- of the limit, such as sends_per_hour
  starts_at BIGINT NOT NULL,
  used      BIGINT NOT NULL, -- by all nodes, without what they returned
  block     BIGINT NOT NULL, -- the size of the last block
  warned    BIGINT NOT NULL, -- use that was reported as rate_limit_warning; 0: none yet
  PRIMARY KEY (account, key, name, starts_at)
) {clustered};

-- Traces of sent messages, which outlive their copies: a reply finds its thread by them, a
-- late report its recipient.
-- owner: outbound
CREATE TABLE outbound_trace (
  id         {id},            -- of the message
  account    BIGINT NOT NULL,
  domain     BIGINT NOT NULL,
  reference  BIGINT NOT NULL, -- hash of its Message-ID
  thread_id  {text} NOT NULL,
  message_id TEXT NOT NULL,
  recipients {blob} NOT NULL  -- API mail: 8 bytes of a hash for each delivery
);
CREATE INDEX outbound_trace_reference ON outbound_trace (account, reference, id);
CREATE INDEX outbound_trace_thread ON outbound_trace (account, thread_id, id) WHERE thread_id <> '';

-- Counts of events in an hour (for some months) or a day of UTC. Rows of domain 0 count all
-- domains of an account.
-- owner: stat
CREATE TABLE stat (
  account      BIGINT NOT NULL,
  domain       BIGINT NOT NULL,
  span         BIGINT NOT NULL, -- length of the period in microseconds
  period       BIGINT NOT NULL, -- begin
  delivered    BIGINT NOT NULL,
  deferred     BIGINT NOT NULL,
  bounced      BIGINT NOT NULL,
  complained   BIGINT NOT NULL,
  suppressed   BIGINT NOT NULL,
  failed       BIGINT NOT NULL,
  cancelled    BIGINT NOT NULL,
  unsubscribed BIGINT NOT NULL,
  inbound      BIGINT NOT NULL,
  PRIMARY KEY (account, domain, span, period)
) {clustered};
CREATE INDEX stat_period ON stat (span, period);

-- Counts of accepted messages, by another leader job.
-- owner: stat
CREATE TABLE stat_accepted (
  account    BIGINT NOT NULL,
  domain     BIGINT NOT NULL,
  span       BIGINT NOT NULL,
  period     BIGINT NOT NULL,
  messages   BIGINT NOT NULL,
  recipients BIGINT NOT NULL,
  PRIMARY KEY (account, domain, span, period)
) {clustered};
CREATE INDEX stat_accepted_period ON stat_accepted (span, period);

-- The tags of sent messages that are counted on a day of UTC, a limited number for each account.
-- owner: stat
CREATE TABLE stat_tag_day (
  account BIGINT NOT NULL,
  day     BIGINT NOT NULL, -- begin
  tag     {text} NOT NULL,
  PRIMARY KEY (account, day, tag)
) {clustered};
CREATE INDEX stat_tag_day_day ON stat_tag_day (day);

-- Like stat, for messages with a tag.
-- owner: stat
CREATE TABLE stat_tag (
  account      BIGINT NOT NULL,
  tag          {text} NOT NULL,
  domain       BIGINT NOT NULL,
  span         BIGINT NOT NULL,
  period       BIGINT NOT NULL,
  delivered    BIGINT NOT NULL,
  deferred     BIGINT NOT NULL,
  bounced      BIGINT NOT NULL,
  complained   BIGINT NOT NULL,
  suppressed   BIGINT NOT NULL,
  failed       BIGINT NOT NULL,
  cancelled    BIGINT NOT NULL,
  unsubscribed BIGINT NOT NULL,
  PRIMARY KEY (account, tag, domain, span, period)
) {clustered};
CREATE INDEX stat_tag_period ON stat_tag (span, period);

-- Like stat_accepted, for messages with a tag.
-- owner: stat
CREATE TABLE stat_tag_accepted (
  account    BIGINT NOT NULL,
  tag        {text} NOT NULL,
  domain     BIGINT NOT NULL,
  span       BIGINT NOT NULL,
  period     BIGINT NOT NULL,
  messages   BIGINT NOT NULL,
  recipients BIGINT NOT NULL,
  PRIMARY KEY (account, tag, domain, span, period)
) {clustered};
CREATE INDEX stat_tag_accepted_period ON stat_tag_accepted (span, period);

-- Position of the last event counted. One row.
-- owner: stat
CREATE TABLE stat_position (
  id       {id},
  position BIGINT NOT NULL
);
INSERT INTO stat_position (id, position) VALUES (1, 0);

-- Messages to other servers that the sandbox captured.
-- owner: relay
CREATE TABLE captured_message (
  id         {id},
  account    BIGINT NOT NULL,
  domain     TEXT NOT NULL,   -- of its From, A-labels
  message    BIGINT NOT NULL, -- the outbound_message
  sender     TEXT NOT NULL,   -- MAIL FROM; '' is the null sender
  recipients TEXT NOT NULL,   -- JSON list of addresses
  blob       BIGINT NOT NULL,
  size       BIGINT NOT NULL,
  structure  {blob} NOT NULL  -- the index of its parts (message.Index)
);
CREATE INDEX captured_message_account ON captured_message (account, id);

-- Users of the dashboard. A user may belong to several accounts.
-- owner: user
CREATE TABLE dashboard_user (
  id          {id},
  email       {text} NOT NULL UNIQUE,    -- as address.Key
  name        TEXT NOT NULL,
  password    TEXT NOT NULL,             -- PHC string
  totp        {blob},                    -- sealed; NULL: no second factor
  totp_step   BIGINT NOT NULL DEFAULT 0, -- time step of the last code, as each is valid once
  created_at  BIGINT NOT NULL,
  -- A user proves an address by a link that is sent to it.
  address     TEXT NOT NULL DEFAULT '',  -- as given, for sending; '': as in email
  verified_at BIGINT NOT NULL DEFAULT 0  -- 0: not proven yet
);

-- owner: user
CREATE TABLE dashboard_member (
  account    BIGINT NOT NULL,
  person     BIGINT NOT NULL REFERENCES dashboard_user (id),
  role       TEXT NOT NULL CHECK (role IN ('owner', 'member', 'reader')),
  created_at BIGINT NOT NULL,
  -- Whether the user may read mail in the dashboard. Owners always may; members by default;
  -- readers if an owner allows it.
  reads_mail BOOLEAN NOT NULL DEFAULT FALSE,
  PRIMARY KEY (account, person)
) {clustered};
CREATE INDEX dashboard_member_person ON dashboard_member (person, account);

-- owner: user
CREATE TABLE dashboard_session (
  id         {id},
  hash       {blob} NOT NULL UNIQUE, -- of the token in the cookie
  person     BIGINT NOT NULL REFERENCES dashboard_user (id),
  account    BIGINT NOT NULL,        -- account shown
  halfway    BIGINT NOT NULL,        -- 1: the second factor is missing
  address    TEXT NOT NULL,          -- of the client, at sign-in
  agent      TEXT NOT NULL,          -- User-Agent, at sign-in
  created_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  -- Wrong codes of the second factor. At the limit the session ends.
  tries      BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX dashboard_session_person ON dashboard_session (person, id);
CREATE INDEX dashboard_session_expires ON dashboard_session (expires_at);

-- Links that work once: to set up the service, join an account or reset a password.
-- owner: user
CREATE TABLE dashboard_ticket (
  id         {id},
  hash       {blob} NOT NULL UNIQUE,    -- of the token in the link
  kind       TEXT NOT NULL CHECK (kind IN ('setup', 'invite', 'reset')),
  account    BIGINT NOT NULL,           -- account to join; 0 for none
  person     BIGINT NOT NULL,           -- user of a password reset; 0 for none
  email      TEXT NOT NULL,             -- invited address; '' for anybody with the link
  role       TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  address    TEXT NOT NULL DEFAULT '',  -- as it was given
  proves     BIGINT NOT NULL DEFAULT 0, -- 1: using the link proves the address
  confirms   BIGINT NOT NULL DEFAULT 0, -- 1: confirms the address, without a new password
  inviter    BIGINT NOT NULL DEFAULT 0, -- inviting user; 0: operator at the command line
  inviter_of BIGINT NOT NULL DEFAULT 0  -- account in which inviter has the right to invite
);
CREATE INDEX dashboard_ticket_account ON dashboard_ticket (account, id);
CREATE INDEX dashboard_ticket_expires ON dashboard_ticket (expires_at);
CREATE INDEX dashboard_ticket_inviter ON dashboard_ticket (inviter, inviter_of);

-- Recovery codes, each for one sign-in without the second factor.
-- owner: user
CREATE TABLE dashboard_recovery_code (
  person BIGINT NOT NULL REFERENCES dashboard_user (id),
  hash   {blob} NOT NULL,
  PRIMARY KEY (person, hash)
) {clustered};

-- Audit log.
-- owner: audit
CREATE TABLE dashboard_audit (
  id          {id},
  account     BIGINT NOT NULL,
  person      BIGINT NOT NULL,
  actor_email TEXT NOT NULL,                -- e-mail address at that time
  summary     TEXT NOT NULL,                -- a sentence
  address     TEXT NOT NULL,                -- of the client
  created_at  BIGINT NOT NULL,
  -- An entry is written before the change and completed after it, so that no change lacks
  -- an entry. person is the id of a user, API key or mailbox, as actor says.
  actor       TEXT NOT NULL DEFAULT 'user', -- user, api_key, mailbox, operator, nobody
  action      {text} NOT NULL DEFAULT '',   -- stable name: an operation of the API, or a route
  object_id   TEXT NOT NULL DEFAULT '',     -- '' for none
  state       TEXT NOT NULL DEFAULT 'done'  -- begun, done, failed
);
CREATE INDEX dashboard_audit_account ON dashboard_audit (account, id);
CREATE INDEX dashboard_audit_created ON dashboard_audit (created_at);
CREATE INDEX dashboard_audit_action ON dashboard_audit (account, action, id);

-- Aliases: addresses whose mail goes to others. An address belongs to a mailbox that is not
-- deleted or to an alias, never to both: who adds one locks the account (account.Hold).
-- owner: mailbox
CREATE TABLE alias (
  id         {id},
  account    BIGINT NOT NULL REFERENCES account (id),
  domain     BIGINT NOT NULL REFERENCES domain (id),
  local_part TEXT NOT NULL,   -- as given; '*' is the catch-all
  address    {text} NOT NULL, -- folded, for look-ups (address.Key)
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX alias_account ON alias (account, id);
-- Begins with the address: with another index that begins with the domain, PostgreSQL would
-- sort all aliases of a domain for a list.
CREATE INDEX alias_domain ON alias (domain, id);
CREATE UNIQUE INDEX alias_address ON alias (address, domain);

-- owner: mailbox
CREATE TABLE alias_target (
  alias   BIGINT NOT NULL,
  n       BIGINT NOT NULL, -- 0…, in the order in which they were given
  mailbox BIGINT NOT NULL, -- of the same account; 0 for an external address
  address TEXT NOT NULL,   -- external address; '' for a mailbox
  PRIMARY KEY (alias, n)
) {clustered};
CREATE INDEX alias_target_mailbox ON alias_target (mailbox) WHERE mailbox > 0;

-- App passwords of mailboxes. They are random, so a plain hash finds them.
-- owner: mailbox
CREATE TABLE app_password (
  id           {id},
  mailbox      BIGINT NOT NULL,
  name         TEXT NOT NULL,
  protocols    TEXT NOT NULL,   -- imap, smtp; separated by blanks
  hash         {blob} NOT NULL UNIQUE,
  created_at   BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL, -- to about an hour; 0 for never
  scram        TEXT NOT NULL DEFAULT ''
);
CREATE INDEX app_password_mailbox ON app_password (mailbox, id);
CREATE INDEX app_password_scram ON app_password (id) WHERE scram <> '';

-- Logins to mailboxes, also failed ones. Repetitions within an hour share a row; only the
-- newest rows are kept.
-- owner: mailbox
CREATE TABLE sign_in (
  id           {id},
  mailbox      BIGINT NOT NULL,
  protocol     TEXT NOT NULL,
  address      TEXT NOT NULL,   -- of the client
  result       TEXT NOT NULL,
  failed       BIGINT NOT NULL, -- 0 for a result of ok, else 1
  app_password TEXT NOT NULL,   -- its name; '' for the mailbox's own
  times        BIGINT NOT NULL,
  first_at     BIGINT NOT NULL,
  last_at      BIGINT NOT NULL
);
CREATE INDEX sign_in_mailbox ON sign_in (mailbox, id);
CREATE INDEX sign_in_newest ON sign_in (mailbox, failed, id);
CREATE INDEX sign_in_last ON sign_in (last_at);

-- Vacation replies (RFC 3834).
-- owner: mailbox
CREATE TABLE vacation (
  mailbox    {id},
  enabled    BOOLEAN NOT NULL,
  starts_at  BIGINT NOT NULL, -- 0: at once
  ends_at    BIGINT NOT NULL, -- 0: never
  subject    TEXT NOT NULL,   -- '': that of the message, with a prefix
  body       TEXT NOT NULL,
  days       BIGINT NOT NULL, -- days until a sender gets another reply
  round      BIGINT NOT NULL, -- rises when all senders may get another reply
  updated_at BIGINT NOT NULL
);

-- Last vacation reply to each sender.
-- owner: mailbox
CREATE TABLE vacation_reply (
  mailbox BIGINT NOT NULL,
  sender  {text} NOT NULL, -- folded (address.Key)
  round   BIGINT NOT NULL,
  at      BIGINT NOT NULL,
  PRIMARY KEY (mailbox, sender)
) {clustered};
CREATE INDEX vacation_reply_at ON vacation_reply (at);

-- Migrations of mailboxes from other servers.
-- owner: migration
CREATE TABLE migration (
  id               {id},
  account          BIGINT NOT NULL REFERENCES account (id),
  domain           BIGINT NOT NULL, -- of the mailbox
  mailbox          BIGINT NOT NULL,
  host             TEXT NOT NULL,
  port             BIGINT NOT NULL,
  tls              TEXT NOT NULL CHECK (tls IN ('implicit', 'starttls', 'none')),
  username         TEXT NOT NULL,
  password         {blob},          -- sealed; NULL after the end
  insecure         BOOLEAN NOT NULL, -- certificates are not checked
  selected_folders TEXT NOT NULL,   -- JSON list of folders; '' for all
  source           BIGINT NOT NULL, -- hash of host and user name: one migration at a time
  state            TEXT NOT NULL CHECK (state IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
  error            TEXT NOT NULL,   -- reason of a failure or a wait; '' for none
  lease            BIGINT,          -- node's lease; NULL for none
  due_at           BIGINT,          -- when to run, while no node does; NULL: ended
  retries          BIGINT NOT NULL, -- failures in a row without progress
  planned          BOOLEAN NOT NULL, -- the folders are known
  folders          BIGINT NOT NULL,
  folders_done     BIGINT NOT NULL,
  messages         BIGINT NOT NULL, -- of all folders
  messages_done    BIGINT NOT NULL, -- looked at
  copied           BIGINT NOT NULL,
  skipped          BIGINT NOT NULL, -- existed already
  failed           BIGINT NOT NULL,
  bytes            BIGINT NOT NULL, -- of all folders
  bytes_copied     BIGINT NOT NULL,
  run_at           BIGINT NOT NULL, -- start of the last run, and the counts at that time
  run_messages     BIGINT NOT NULL,
  run_bytes        BIGINT NOT NULL,
  created_at       BIGINT NOT NULL,
  started_at       BIGINT NOT NULL, -- 0: not yet
  finished_at      BIGINT NOT NULL, -- 0: not yet
  updated_at       BIGINT NOT NULL
) {hot};
CREATE INDEX migration_account ON migration (account, id);
CREATE INDEX migration_domain ON migration (account, domain, id);
CREATE INDEX migration_mailbox ON migration (mailbox, id);
CREATE INDEX migration_due ON migration (due_at) WHERE lease IS NULL AND due_at IS NOT NULL;
CREATE INDEX migration_lease ON migration (lease, id) WHERE lease IS NOT NULL;
CREATE INDEX migration_busy ON migration (account) WHERE lease IS NOT NULL;
CREATE INDEX migration_open ON migration (account, id) WHERE state IN ('queued', 'running');
CREATE UNIQUE INDEX migration_source ON migration (source) WHERE lease IS NOT NULL;

-- Folders of a migration, with their progress.
-- owner: migration
CREATE TABLE migration_folder (
  migration   BIGINT NOT NULL,
  n           BIGINT NOT NULL,
  name        TEXT NOT NULL,   -- there
  target      TEXT NOT NULL,   -- here
  state       TEXT NOT NULL CHECK (state IN ('waiting', 'done', 'failed')),
  error       TEXT NOT NULL,   -- why it failed; '' for none
  subscribed  BOOLEAN NOT NULL,
  uidvalidity BIGINT NOT NULL, -- of what follows
  last_uid    BIGINT NOT NULL, -- last UID done
  messages    BIGINT NOT NULL,
  done        BIGINT NOT NULL,
  copied      BIGINT NOT NULL,
  skipped     BIGINT NOT NULL,
  failed      BIGINT NOT NULL,
  bytes       BIGINT NOT NULL, -- -1: not known yet
  PRIMARY KEY (migration, n)
) {clustered} {hot};

-- Copied messages, so that none is copied twice.
-- owner: migration
CREATE TABLE migration_copied (
  mailbox     BIGINT NOT NULL,
  source      BIGINT NOT NULL, -- hash of host, user name and folder
  uidvalidity BIGINT NOT NULL,
  uid         BIGINT NOT NULL,
  digest      BIGINT NOT NULL, -- hash of Message-ID, size and date, for a changed UIDVALIDITY
  migration   BIGINT NOT NULL,
  PRIMARY KEY (mailbox, source, uidvalidity, uid)
) {clustered};
CREATE INDEX migration_copied_digest ON migration_copied (mailbox, source, digest);

-- Messages that could not be copied, the first thousand of each migration.
-- owner: migration
CREATE TABLE migration_failure (
  migration BIGINT NOT NULL,
  n         BIGINT NOT NULL,
  folder    TEXT NOT NULL,
  uid       BIGINT NOT NULL, -- 0: the folder as a whole
  error     TEXT NOT NULL,
  PRIMARY KEY (migration, n)
) {clustered};

-- Bayes filter: number of trained messages of an account that contain a token.
-- owner: spam
CREATE TABLE spam_token (
  account BIGINT NOT NULL,
  token   BIGINT NOT NULL, -- 64 bits of a hash
  spam    BIGINT NOT NULL, -- a negative value counts as 0
  ham     BIGINT NOT NULL,
  day     BIGINT NOT NULL, -- of the last message, since 1970
  PRIMARY KEY (account, token)
) {clustered};

-- Bayes filter: number of trained messages of an account.
-- owner: spam
CREATE TABLE spam_training_total (
  account {id},
  spam    BIGINT NOT NULL,
  ham     BIGINT NOT NULL
);

-- Bayes filter: trained messages, so that none counts twice.
-- owner: spam
CREATE TABLE spam_trained_message (
  account BIGINT NOT NULL,
  mark    BIGINT NOT NULL, -- 64 bits of a hash of the message
  spam    BOOLEAN NOT NULL,
  day     BIGINT NOT NULL,
  PRIMARY KEY (account, mark)
) {clustered};

-- Bayes filter: messages to train, which a user moved to or out of Junk.
-- owner: spam
CREATE TABLE spam_training_task (
  message {id},
  account BIGINT NOT NULL,
  spam    BOOLEAN NOT NULL
);

-- Fingerprint of the secret key that sealed this database's values. One row.
-- owner: db
CREATE TABLE service_key (
  id          {id}, -- 1
  fingerprint TEXT NOT NULL
);

-- Links to the configuration profile of a mailbox. Each works once and generates an app
-- password when it is followed.
-- owner: mailbox
CREATE TABLE profile_link (
  id         {id},
  mailbox    BIGINT NOT NULL,
  generation BIGINT NOT NULL,        -- mailbox.generation: a new password ends the link
  name       TEXT NOT NULL,          -- of the device
  hash       {blob} NOT NULL UNIQUE, -- of the token
  expires_at BIGINT NOT NULL,
  used_at    BIGINT NOT NULL         -- 0: not yet
);
CREATE INDEX profile_link_mailbox ON profile_link (mailbox, id);
CREATE INDEX profile_link_expires ON profile_link (expires_at);

-- Saved views of large folders, so that opening one does not read all messages. Derived: if
-- a view is missing or too old, the messages are read.
-- owner: folder
CREATE TABLE folder_view (
  folder         {id},
  version        BIGINT NOT NULL, -- rises with each write
  format         BIGINT NOT NULL, -- of the parts
  changed_modseq BIGINT NOT NULL, -- folder.changed_modseq at that time
  next_uid       BIGINT NOT NULL, -- first UID that is missing
  keyword_sets   TEXT NOT NULL    -- keyword sets, one a line; parts refer to line numbers
);

-- Messages of a saved view, by ranges of UIDs.
-- owner: folder
CREATE TABLE folder_view_part (
  folder BIGINT NOT NULL,
  part   BIGINT NOT NULL, -- UID >> 14
  data   {blob} NOT NULL,
  PRIMARY KEY (folder, part)
);

-- Later information about a delivery that does not change its state, such as a delay report
-- of another host or an automatic reply. The timeline shows it.
-- owner: queue
CREATE TABLE remark (
  message     BIGINT NOT NULL,
  n           BIGINT NOT NULL,
  mark        {text} NOT NULL, -- identifies the report, so that a duplicate is ignored
  at          BIGINT NOT NULL,
  outcome     TEXT NOT NULL,   -- deferred, delivered
  stage       TEXT NOT NULL,   -- delay, auto-reply
  code        BIGINT NOT NULL,
  enhanced    TEXT NOT NULL,
  reply       TEXT NOT NULL,
  remote_host TEXT NOT NULL,
  PRIMARY KEY (message, n, mark)
) {clustered};

-- Open sessions of mailboxes. Those of an expired lease have ended, and are ignored until
-- they are deleted.
-- owner: mailbox
CREATE TABLE mailbox_session (
  id           {id},
  mailbox      BIGINT NOT NULL,
  lease        BIGINT NOT NULL, -- of the connection's node
  protocol     TEXT NOT NULL,
  address      TEXT NOT NULL,   -- of the client
  app_password TEXT NOT NULL,   -- its name; '' for the mailbox's own
  program      TEXT NOT NULL,   -- client's name for itself; '' for none
  since        BIGINT NOT NULL
);
CREATE INDEX mailbox_session_mailbox ON mailbox_session (mailbox, id);
CREATE INDEX mailbox_session_lease ON mailbox_session (lease, id);

-- Incarnation of the PostgreSQL server. An unlogged table is empty after a crash and on a
-- standby that takes over, so a new row is inserted then. One row; not used on SQLite.
-- owner: db
CREATE TABLE server_incarnation (
  id   {id}, -- 1
  name TEXT NOT NULL
);
{postgres}ALTER TABLE server_incarnation SET UNLOGGED;

-- Distinguishes this database from others with the same secret key, such as a copy. One row.
-- owner: db
CREATE TABLE database_name (
  id   {id}, -- 1
  name TEXT NOT NULL
);

-- Failed logins of all nodes: by credential (network ''), by network (credential ''), and by
-- both if the credential has signed in from that network. Each failure moves clear_at, when
-- the failures are forgotten.
-- owner: ratelimit
CREATE TABLE login_failure (
  credential {text} NOT NULL, -- "mailbox:ID", "apps:ID", "user:ID", …
  network    {text} NOT NULL, -- the client's: /32, /64 or /48
  clear_at   BIGINT NOT NULL,
  PRIMARY KEY (credential, network)
) {clustered};
CREATE INDEX login_failure_clear ON login_failure (clear_at);

-- Networks that a credential has recently signed in from. There, only its own failures
-- count.
-- owner: ratelimit
CREATE TABLE login_network (
  credential {text} NOT NULL,
  network    {text} NOT NULL,
  seen_at    BIGINT NOT NULL,
  PRIMARY KEY (credential, network)
) {clustered};
CREATE INDEX login_network_seen ON login_network (seen_at);

-- Number of service mails to an address, or on behalf of a user, in a window of time.
-- owner: user
CREATE TABLE service_mail (
  key     {text} NOT NULL, -- kind of mail, and recipient or user
  ends_at BIGINT NOT NULL, -- of the window
  sent    BIGINT NOT NULL,
  PRIMARY KEY (key, ends_at)
) {clustered};
CREATE INDEX service_mail_ends ON service_mail (ends_at);

-- Differences between source and copy: one row for all messages of a folder with the same
-- difference.
-- owner: migration
CREATE TABLE migration_note (
  migration BIGINT NOT NULL,
  k         BIGINT NOT NULL, -- hash of folder and note
  folder    TEXT NOT NULL,   -- there
  uid       BIGINT NOT NULL, -- at the source, of the first message
  note      TEXT NOT NULL,
  messages  BIGINT NOT NULL, -- how many
  PRIMARY KEY (migration, k)
) {clustered};

-- Senders of forwarded mail whose addresses are too long for an encoded return path. Kept
-- for as long as a report may come back.
-- owner: inbound
CREATE TABLE forward_path (
  id      {id},
  account BIGINT NOT NULL,
  sender  TEXT NOT NULL,
  at      BIGINT NOT NULL
);
CREATE INDEX forward_path_at ON forward_path (at);

-- Sum of mailbox.quota of an account's mailboxes that are not deleted. It changes in
-- the same transaction, under the lock of the account (account.Hold).
-- owner: mailbox
CREATE TABLE mailbox_storage (
  account  {id},
  allotted BIGINT NOT NULL -- bytes
);

-- Suffixes of mailboxes' addresses and display names, in lower case, cut to 12 letters:
-- searching for a part of a name is a search for a prefix of a suffix.
-- owner: mailbox
CREATE TABLE mailbox_piece (
  account BIGINT NOT NULL,
  piece   {text} NOT NULL,
  mailbox BIGINT NOT NULL,
  PRIMARY KEY (account, piece, mailbox)
) {clustered};

-- DKIM key of the service's own host name, which signs reports and service mail. Generated
-- once and shared by all nodes.
-- owner: domain
CREATE TABLE host_key (
  algorithm   {text} PRIMARY KEY CHECK (algorithm IN ('rsa')),
  selector    TEXT NOT NULL,
  private_key {blob} NOT NULL, -- sealed
  record      TEXT NOT NULL,   -- the TXT value to publish
  created_at  BIGINT NOT NULL
);

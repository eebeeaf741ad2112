-- +goose Up

-- The events of a domain and of a mailbox, by kind: each list reads an index that leads
-- with its filter. Both gain a row when an event gets its position, not before.
CREATE INDEX event_domain ON event (domain, kind, position) WHERE domain > 0 AND position IS NOT NULL;
CREATE INDEX event_mailbox ON event (mailbox, kind, position) WHERE mailbox > 0 AND position IS NOT NULL;

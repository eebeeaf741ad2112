-- +goose Up

-- What is done with mail to a domain that a spam filter objects to: enforce
-- (what the filter asks for), junk (no more than that), off (nothing).
ALTER TABLE domain ADD COLUMN spam_filtering TEXT NOT NULL DEFAULT 'enforce';

-- The mode of the MTA-STS policy that is published for a domain.
ALTER TABLE domain ADD COLUMN mta_sts TEXT NOT NULL DEFAULT 'testing';

-- How many messages that an account taught the spam filter hold a word.
-- owner: spam
CREATE TABLE spam_token (
  account BIGINT NOT NULL,
  token   BIGINT NOT NULL,             -- 64 bits of a hash
  spam    BIGINT NOT NULL,             -- below 0 it is 0: the word was forgotten before
  ham     BIGINT NOT NULL,
  day     BIGINT NOT NULL,             -- of the last one, from 1970 on
  PRIMARY KEY (account, token)
) {clustered};

-- How many messages that was in all.
-- owner: spam
CREATE TABLE spam_taught (
  account {id},
  spam    BIGINT NOT NULL,
  ham     BIGINT NOT NULL
);

-- What was taught, so that no message counts twice.
-- owner: spam
CREATE TABLE spam_lesson (
  account BIGINT NOT NULL,
  mark    BIGINT NOT NULL,             -- 64 bits of a hash of the message
  spam    BOOLEAN NOT NULL,
  day     BIGINT NOT NULL,
  PRIMARY KEY (account, mark)
) {clustered};

-- What is yet to be learned: messages that a person put somewhere. They are
-- found where they are now, whose they are with their mailbox.
-- reads folder_message: spam
-- reads mailbox: spam
-- owner: spam
CREATE TABLE spam_task (
  message {id},
  account BIGINT NOT NULL,
  spam    BOOLEAN NOT NULL
);

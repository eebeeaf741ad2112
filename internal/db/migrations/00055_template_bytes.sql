-- +goose Up

-- What the versions of a template take, in bytes: an account has a limit of that.
ALTER TABLE template ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE template_version ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
UPDATE template_version SET bytes = octet_length(subject) + octet_length(html) + octet_length(text) + octet_length(variables);
UPDATE template SET bytes = (SELECT COALESCE(SUM(bytes), 0) FROM template_version WHERE template = template.id);

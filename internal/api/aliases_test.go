// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

func newAlias(t *testing.T, s *servertest.Server, addr string, targets ...string) string {
	t.Helper()
	a := s.API("POST", "/aliases", object{"address": addr, "targets": targets})
	status(t, addr, a, 201)
	return into(t, a)["id"].(string)
}

func TestAliases(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, bob := s.Dev.Mailboxes[0].ID.String(), s.Dev.Mailboxes[1].ID.String()
		refused(t, "everything wrong", s.API("POST", "/aliases", object{"address": "x", "targets": []string{}}), 422, "validation_failed",
			"address invalid_address", "targets wrong_number")
		id := newAlias(t, s, "Sales@demo.test", "bob@demo.test", alice)
		shown := into(t, s.API("GET", "/aliases/"+id, nil))
		if shown["address"] != "Sales@demo.test" || shown["domain_id"] != s.Dev.Domain.ID.String() {
			t.Errorf("shows %v", shown)
		}
		if got := shown["targets"].([]any); len(got) != 2 || got[0] != "bob@demo.test" || got[1] != "alice@demo.test" {
			t.Errorf("leads to %v", got)
		}
		refused(t, "once more", s.API("POST", "/aliases", object{"address": "sales@demo.test", "targets": []string{bob}}), 409, "address_taken")
		refused(t, "a mailbox there", s.API("POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID, "local_part": "sales"}), 409, "address_taken")

		// Only the target mailboxes may send as the alias.
		mail := func(from string) error {
			c, err := loginSMTP(t, s, "alice@demo.test", s.Dev.Mailboxes[0].Password)
			if err != nil {
				return err
			}
			if err := c.Mail(from); err != nil {
				return err
			}
			if err := c.Rcpt("delivered@simulator.test"); err != nil {
				return err
			}
			w, err := c.Data()
			if err != nil {
				return err
			}
			_, _ = w.Write([]byte("From: <" + from + ">\r\nSubject: hi\r\n\r\nhi\r\n"))
			if err := w.Close(); err != nil {
				return err
			}
			return c.Quit()
		}
		if err := mail("sales+x@demo.test"); err != nil {
			t.Error(err)
		}
		status(t, "narrowing it", s.API("PATCH", "/aliases/"+id, object{"targets": []string{bob}}), 200)
		if err := mail("sales@demo.test"); err == nil || !strings.Contains(err.Error(), "5.7.1") {
			t.Errorf("as another's alias: %v", err)
		}
		// Mail from another domain of the account is signed by that domain.
		other := verified(t, s, s.Dev.APIKey, "second.test")
		newAlias(t, s, "ally@second.test", alice)
		if err := mail("ally@second.test"); err != nil {
			t.Error(err)
		}
		sent := s.API("GET", "/outbound/messages?domain_id="+other, nil)
		if got := ids(t, sent); len(got) != 1 {
			t.Errorf("sent from the other domain: %s", sent.Body)
		}

		status(t, "deleting", s.API("DELETE", "/aliases/"+id, nil), 204)
		refused(t, "deleted", s.API("GET", "/aliases/"+id, nil), 404, "not_found")
	})
}

// A domain-restricted key sees neither the aliases nor the mailboxes of other domains.
func TestAliasesOfOneDomain(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		other := verified(t, s, s.Dev.APIKey, "other.test")
		a := s.API("POST", "/mailboxes", object{"domain_id": other, "local_part": "zoe", "password": "Aa1!aaaa"})
		status(t, "a mailbox there", a, 201)
		zoe := into(t, a)["id"].(string)
		there, here := newAlias(t, s, "team@other.test", zoe), newAlias(t, s, "team@demo.test", "bob@demo.test")
		_, key := newKey(t, s, object{"domain": "demo.test"})
		if got := ids(t, s.APIWithKey(key, "GET", "/aliases", nil)); !slices.Equal(got, []string{here}) {
			t.Errorf("aliases: %v", got)
		}
		if got := ids(t, s.API("GET", "/aliases?domain_id="+other, nil)); !slices.Equal(got, []string{there}) {
			t.Errorf("those of the other: %v", got)
		}
		refused(t, "the other's", s.APIWithKey(key, "GET", "/aliases?domain_id="+other, nil), 422, "validation_failed", "domain_id not_found")
		refused(t, "showing", s.APIWithKey(key, "GET", "/aliases/"+there, nil), 404, "not_found")
		refused(t, "deleting", s.APIWithKey(key, "DELETE", "/aliases/"+there, nil), 404, "not_found")
		refused(t, "changing", s.APIWithKey(key, "PATCH", "/aliases/"+there, object{"targets": []string{"bob@demo.test"}}), 404, "not_found")
		refused(t, "making one there", s.APIWithKey(key, "POST", "/aliases", object{"address": "x@other.test", "targets": []string{"bob@demo.test", zoe}}), 422, "validation_failed",
			"address domain_restricted", "targets[1] not_found")
		refused(t, "leading there", s.APIWithKey(key, "PATCH", "/aliases/"+here, object{"targets": []string{"zoe@other.test"}}), 422, "validation_failed", "targets[0] not_found")
	})
}

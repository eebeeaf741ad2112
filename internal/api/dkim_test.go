// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// states lists a domain's DKIM keys with their states, newest first, and their ids.
func states(t *testing.T, s *servertest.Server, path string) (text string, ids []string) {
	t.Helper()
	a := s.API("GET", path+"/dkim", nil)
	status(t, "the keys", a, 200)
	if bytes.Contains(a.Body, []byte("private")) {
		t.Errorf("a private key is shown: %s", a.Body)
	}
	for _, k := range into(t, a)["data"].([]any) {
		k := k.(object)
		text += fmt.Sprint(k["algorithm"], " ", k["status"], ", ")
		ids = append(ids, k["id"].(string))
	}
	return strings.TrimSuffix(text, ", "), ids
}

func TestDKIM(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		path := "/domains/" + s.Dev.Domain.ID.String()
		want := func(text string) (ids []string) {
			t.Helper()
			got, ids := states(t, s, path)
			if got != text {
				t.Errorf("the keys are %s, want %s", got, text)
			}
			return ids
		}
		want("ed25519 active, rsa active")
		a := s.API("POST", path+"/dkim/rotate", nil)
		status(t, "rotating", a, 200)
		made := into(t, a)["data"].([]any)
		if k := made[0].(object); len(made) != 2 || k["status"] != "pending" || k["origin"] != "service" || k["record"].(object)["note"] == nil || k["active_at"] != nil {
			t.Errorf("made %s", a.Body)
		}
		refused(t, "again", s.API("POST", path+"/dkim/rotate", object{}), 409, "key_pending")
		refused(t, "an unknown algorithm", s.API("POST", path+"/dkim/rotate", object{"algorithm": "dsa"}), 422, "validation_failed", "algorithm unknown_value")
		status(t, "the DNS", s.API("POST", path+"/verify-dns", nil), 200)
		want("ed25519 active, rsa active, ed25519 retiring, rsa retiring")

		own := dkimKey(t)
		bare := strings.Split(own, "\n")[1]
		for what, c := range map[string]struct {
			body   object
			faults []string
		}{
			"nothing":    {object{}, []string{"selector required", "private_key required"}},
			"all wrong":  {object{"selector": "a b", "private_key": bare}, []string{"selector invalid_selector", "private_key invalid_key"}},
			"cut off":    {object{"selector": "own", "private_key": own[:60]}, []string{"private_key invalid_key"}},
			"more":       {object{"selector": "own", "private_key": own, "bits": 1}, []string{"bits unknown_field"}},
			"types":      {object{"selector": 1, "private_key": []string{own}}, []string{"selector wrong_type", "private_key wrong_type"}},
			"a long one": {object{"selector": "own", "private_key": strings.Repeat(bare, 200)}, []string{"private_key key_too_long"}},
		} {
			a := s.API("POST", path+"/dkim", c.body)
			if bytes.Contains(a.Body, []byte(bare[:20])) {
				t.Errorf("%s: the key is repeated: %s", what, a.Body)
			}
			var p problem
			a.Decode(t, &p)
			got := map[string]bool{}
			for _, e := range p.Errors {
				got[e.Field+" "+e.Code] = true
			}
			for _, f := range c.faults {
				if a.Status != 422 || !got[f] {
					t.Errorf("%s: %d %s, want %s", what, a.Status, a.Body, f)
				}
			}
		}
		a = s.API("POST", path+"/dkim", object{"selector": "Own", "private_key": own})
		status(t, "bringing a key", a, 201)
		if k := into(t, a); k["selector"] != "own" || k["origin"] != "own" || k["status"] != "pending" || bytes.Contains(a.Body, []byte(bare)) ||
			k["record"].(object)["name"] != "own._domainkey.demo.test" {
			t.Errorf("brought %s", a.Body)
		}
		refused(t, "again", s.API("POST", path+"/dkim", object{"selector": "own", "private_key": own}), 409, "selector_taken")
		status(t, "the DNS", s.API("POST", path+"/verify-dns", nil), 200)
		ids := want("ed25519 active, ed25519 retiring, rsa active, ed25519 retiring, rsa retiring")
		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		sender, err := s.Domains.SendingDomain(t.Context(), acc.ID, "demo.test")
		if err != nil || len(sender.Signer.Keys) != 2 || sender.Signer.Keys[1].Selector != "own" {
			t.Errorf("signs with %+v, %v", sender.Signer, err)
		}
		status(t, "deleting a retiring one", s.API("DELETE", path+"/dkim/"+ids[4], nil), 204)
		refused(t, "again", s.API("DELETE", path+"/dkim/"+ids[4], nil), 404, "not_found")
		status(t, "deleting one of two", s.API("DELETE", path+"/dkim/"+ids[0], nil), 204)
		refused(t, "deleting the last", s.API("DELETE", path+"/dkim/"+ids[2], nil), 409, "last_key")

		a = s.API("PATCH", path, object{"dkim_rotation_days": 90})
		status(t, "a schedule", a, 200)
		if got := into(t, a)["dkim_rotation_days"]; got != 90.0 {
			t.Errorf("every %v days", got)
		}
		status(t, "no change", s.API("PATCH", path, object{}), 200)
		refused(t, "too often", s.API("PATCH", path, object{"dkim_rotation_days": 1}), 422, "validation_failed", "dkim_rotation_days out_of_range")
		if got := into(t, s.API("GET", path, nil))["dkim_rotation_days"]; got != 90.0 {
			t.Errorf("every %v days", got)
		}

		foreign, other := stranger(t, s), oneDomain(t, s, "other.test")
		for _, c := range []struct {
			method, path string
			body         any
		}{
			{"PATCH", path, object{"dkim_rotation_days": 0}}, {"GET", path + "/dkim", nil}, {"POST", path + "/dkim/rotate", nil},
			{"POST", path + "/dkim", object{"selector": "x", "private_key": own}}, {"DELETE", path + "/dkim/" + ids[1], nil},
			{"DELETE", "/domains/" + nobody + "/dkim/" + ids[1], nil}, {"DELETE", path + "/dkim/x", nil},
		} {
			refused(t, "a stranger: "+c.method+" "+c.path, s.APIWithKey(foreign, c.method, c.path, c.body), 404, "not_found")
			refused(t, "another domain: "+c.method+" "+c.path, s.APIWithKey(other, c.method, c.path, c.body), 404, "not_found")
		}
		_, reader := newKey(t, s, object{"scopes": []string{"domains.read"}})
		status(t, "reading", s.APIWithKey(reader, "GET", path+"/dkim", nil), 200)
		refused(t, "rotating", s.APIWithKey(reader, "POST", path+"/dkim/rotate", nil), 403, "missing_scope")
	})
}

// dkimKey returns a new private key in PEM.
func dkimKey(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

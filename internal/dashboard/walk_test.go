// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// signIn signs in as the owner that `mailstead dev` creates.
func (b *browser) signIn(s *servertest.Server) {
	b.t.Helper()
	b.open("/sign-in")
	b.fill("email", s.Dev.Dashboard.Email)
	b.fill("password", s.Dev.Dashboard.Password)
	b.press("/sign-in")
	b.reads("last 24 hours")
}

// A customer visits all pages. axe checks each of them in light and dark colours and at phone
// width.
func TestWalk(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)

	b.open("/domains")
	b.reads("Sign in to Mailstead")
	b.looks("sign-in")
	b.fill("email", s.Dev.Dashboard.Email)
	b.fill("password", "not the password")
	b.press("/sign-in")
	b.reads("The e-mail address or the password is wrong.")
	b.fill("password", s.Dev.Dashboard.Password)
	b.press("/sign-in")
	b.reads("demo.test")
	b.looks("domains")

	b.open("/")
	b.reads("Get going")
	b.looks("start")

	b.open("/domains")
	b.fill("name", "not a domain")
	b.press("/domains")
	b.reads("Each part of a domain name")
	b.accessible()
	b.fill("name", "walk.example")
	b.press("/domains")
	b.reads("Added the domain walk.example.")
	b.press(b.path() + "/check")
	b.reads("Looked for the records")
	b.looks("domain")
	b.fill("dmarc_enforcement", "junk")
	b.fill("spam_filtering", "off")
	b.fill("mta_sts", "enforce")
	b.press(b.path() + "/arriving")
	b.reads("Saved what is done with mail to walk.example.")
	if got := script[string](b, `[...document.querySelectorAll("main section[aria-labelledby=arriving] select")].map(s => s.value).join(" ")`); got != "junk off enforce" {
		t.Errorf("the settings are %s", got)
	}
	b.accessible()

	b.open("/people")
	b.fill("email", "colleague@demo.test")
	b.press("/people")
	b.reads("Sent an invitation to colleague@demo.test")
	b.accessible()
	b.open("/people")
	b.reads("Open invitations")
	b.looks("people")
	b.open("/activity")
	b.reads("Added the domain walk.example.")
	b.looks("activity")
	b.open("/profile")
	b.reads("Where you are signed in")
	b.looks("profile")
	b.open("/profile/factor")
	b.reads("Scan this")
	b.looks("factor")
	b.open("/nowhere")
	b.reads("Not found")
	b.looks("error")
	b.press("/sign-out")
	b.reads("Sign in to Mailstead")
}

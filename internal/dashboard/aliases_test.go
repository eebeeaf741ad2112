// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

func TestAliasPages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	b.open("/aliases")
	b.reads("No alias yet")
	b.accessible()
	b.fill("address", "info@not-ours.example")
	b.fill("targets", "nonsense")
	b.press("/aliases")
	b.reads("Some fields need correcting.")
	b.accessible()
	b.fill("address", "info@demo.test")
	b.fill("targets", "alice@demo.test\nbob@demo.test")
	b.press("/aliases")
	b.reads("Made the alias info@demo.test.")
	b.fill("address", "*@demo.test")
	b.fill("targets", "bob@demo.test")
	b.press("/aliases")
	b.reads("what nobody else has")
	b.fill("address", "alice@demo.test")
	b.fill("targets", "bob@demo.test")
	b.press("/aliases")
	b.reads("with this address already")
	b.open("/aliases")
	b.looks("aliases")
	path := script[string](b, `[...document.querySelectorAll("tbody a")].pop().getAttribute("href")`)
	b.open(path)
	b.reads("info@demo.test")
	if got := script[string](b, `document.querySelector("textarea").value`); got != "alice@demo.test\nbob@demo.test" {
		t.Errorf("it leads to %q", got)
	}
	b.looks("alias")
	b.fill("targets", "bob@demo.test")
	b.press(path)
	b.reads("Changed where info@demo.test leads to.")
	script[bool](b, `document.querySelector("details.danger").open = true`)
	b.press(path + "/delete")
	b.reads("Deleted the alias info@demo.test.")
	b.open(path)
	b.reads("Not found")
}

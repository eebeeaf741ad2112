// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"cmp"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// madeFor is the field by which each form says whom it was made for. Since then the
// browser may have changed to another account, or mailbox, in another tab.
const madeFor = "made_for"

// codeElsewhere is that of the fault of a form that was made for another.
const codeElsewhere = "made_for_another"

// whose is the account that is looked at, or the mailbox whose owner visits; 0 if
// nobody is signed in.
func (v *visit) whose() db.ID {
	switch {
	case v.owner != 0:
		return v.owner
	case v.known && !v.in.Halfway:
		return v.in.Account
	}
	return 0
}

// meant returns a fault.Conflict for a form that was made for another. One that does
// not say is nobody else's.
func (v *visit) meant(made string) error {
	if made == "" || made == v.whose().String() {
		return nil
	}
	again := "reload this page: what you entered is sent again."
	if v.scripted() {
		again = "press the button once more."
	}
	if v.owner != 0 {
		return fault.New(fault.Conflict, codeElsewhere, "This form was made for another mailbox, and you are signed in to %s now. Nothing was done. Sign in to the other in another tab, then %s", v.in.User.Email, again)
	}
	return fault.New(fault.Conflict, codeElsewhere, "This form was made for another account, and you look at %s now. Nothing was done. Open the other in another tab, then %s", cmp.Or(v.account.Name, v.account.Email), again)
}

// forWhom is a page whose forms say whom they are made for.
func forWhom(page []byte, whose db.ID) (out []byte) {
	field := []byte(`<input type="hidden" name="` + madeFor + `" value="` + whose.String() + `">`)
	for {
		at := bytes.Index(page, []byte(`<form method="post"`))
		if at < 0 || whose == 0 {
			return append(out, page...)
		}
		at += bytes.IndexByte(page[at:], '>') + 1 // in attributes that is written &gt;
		out = append(append(out, page[:at]...), field...)
		page = page[at:]
	}
}

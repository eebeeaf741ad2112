// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// The commands without arguments.
type (
	// Capability is CAPABILITY (RFC 9051 §6.1.1).
	Capability struct{}
	// Noop is NOOP (§6.1.2).
	Noop struct{}
	// Logout is LOGOUT (§6.1.3).
	Logout struct{}
	// StartTLS is STARTTLS (§6.2.1).
	StartTLS struct{}
	// Unauthenticate is UNAUTHENTICATE (RFC 8437).
	Unauthenticate struct{}
	// Namespace is NAMESPACE (RFC 9051 §6.3.10).
	Namespace struct{}
	// Idle is IDLE (§6.3.13): answer with Continue, then ReadDone.
	Idle struct{}
	// Check is CHECK (RFC 3501 §6.4.1).
	Check struct{}
	// Close is CLOSE (RFC 9051 §6.4.1).
	Close struct{}
	// Unselect is UNSELECT (§6.4.2).
	Unselect struct{}
)

// Name returns the command's name.
func (*Capability) Name() string { return "CAPABILITY" }

// Name returns the command's name.
func (*Noop) Name() string { return "NOOP" }

// Name returns the command's name.
func (*Logout) Name() string { return "LOGOUT" }

// Name returns the command's name.
func (*StartTLS) Name() string { return "STARTTLS" }

// Name returns the command's name.
func (*Unauthenticate) Name() string { return "UNAUTHENTICATE" }

// Name returns the command's name.
func (*Namespace) Name() string { return "NAMESPACE" }

// Name returns the command's name.
func (*Idle) Name() string { return "IDLE" }

// Name returns the command's name.
func (*Check) Name() string { return "CHECK" }

// Name returns the command's name.
func (*Close) Name() string { return "CLOSE" }

// Name returns the command's name.
func (*Unselect) Name() string { return "UNSELECT" }

// ReadDone waits for the DONE that ends IDLE (RFC 2177). A *Error means that
// something else came: the IDLE command is then refused with it.
func (r *Reader) ReadDone() error {
	line, err := r.readNonCommand()
	if err != nil {
		return err
	}
	if !strings.EqualFold(string(line), "DONE") {
		r.skipRest = true
		return bad("IDLE ends with DONE.")
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package wire

// Commands without arguments (RFC 9051 §6; CHECK and the plain EXPUNGE as
// in RFC 3501; UNAUTHENTICATE RFC 8437).

type (
	Capability     struct{}
	Noop           struct{}
	Logout         struct{}
	StartTLS       struct{}
	Unauthenticate struct{}
	Namespace      struct{}
	Idle           struct{} // answer with Continue, then ReadDone
	Check          struct{}
	Close          struct{}
	Unselect       struct{}
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

func bareCommand(name []byte) Command {
	switch string(name) {
	case "CAPABILITY":
		return &Capability{}
	case "NOOP":
		return &Noop{}
	case "LOGOUT":
		return &Logout{}
	case "STARTTLS":
		return &StartTLS{}
	case "UNAUTHENTICATE":
		return &Unauthenticate{}
	case "NAMESPACE":
		return &Namespace{}
	case "IDLE":
		return &Idle{}
	case "CHECK":
		return &Check{}
	case "CLOSE":
		return &Close{}
	case "UNSELECT":
		return &Unselect{}
	case "EXPUNGE":
		return &Expunge{}
	}
	return nil
}

// ReadDone waits for the DONE that ends IDLE (RFC 2177). A *Error means that
// something else came: the IDLE command is then refused with it.
func (r *Reader) ReadDone() error {
	line, err := r.readRaw()
	if err != nil {
		return err
	}
	if len(line) != 4 || !equalFold(string(line), "DONE") {
		r.refused = true
		return bad("IDLE ends with DONE.")
	}
	return nil
}

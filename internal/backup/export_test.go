// SPDX-License-Identifier: Apache-2.0

package backup

// IsListable reports whether a small file of this name may be in a manifest.
var IsListable = isSmall

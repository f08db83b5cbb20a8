/** The static table (RFC 7541, Appendix A). Index 0 is not used. */

const ROWS = `
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate
`.split('\n')

export const STATIC_NAMES: readonly string[] = ROWS.slice(0, -1).map(row => row.split(' ', 1)[0]!)
export const STATIC_VALUES: readonly string[] = STATIC_NAMES.map((name, index) => ROWS[index]!.slice(name.length + 1))

/** Entries of the dynamic table follow (section 2.3.3). */
export const FIRST_DYNAMIC = STATIC_NAMES.length

/** Decides by name which header fields, query parameters and body members hold a secret. Names are in the form of {@link plainName}. */

const FIELDS = new Set(['authorization', 'proxyauthorization', 'cookie', 'setcookie', 'authenticationinfo'])

/** OpenTelemetry's list of query parameters, our own, and the usual spellings. */
const MEMBERS = new Set([
  ...['awsaccesskeyid', 'signature', 'sig', 'xgoogsignature', 'xamzsignature', 'xamzcredential'],
  ...['code', 'state', 'key'],
])

const END = /(?:token|secret|password|passwd|passphrase|apikey|accesskey|secretkey|privatekey)$/

/** Maps `accessToken`, `ACCESS_TOKEN`, `access-tOken` and `"access token"` to one name. */
function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')
}

export function isSecretField(name: string): boolean {
  const plain = plainName(name)
  return FIELDS.has(plain) || END.test(plain)
}

/** For members of a query, a form or a JSON object. Each part of `user[password]` counts. */
export function isSecretMember(name: string): boolean {
  return name.split(/[[\].]/).some(part => MEMBERS.has(plainName(part)) || isSecretField(part))
}

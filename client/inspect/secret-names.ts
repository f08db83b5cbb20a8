/** Which header fields, query parameters and members of a body hold a secret, by their names. */

const FIELDS = new Set([
  ...['authorization', 'proxy-authorization', 'cookie', 'set-cookie', 'authentication-info'],
  ...['x-access-token', 'x-gitlab-token', 'x-api-key', 'api-key', 'apikey'],
])

/** OpenTelemetry's list of query parameters, ours, and the usual spellings; as {@link plainName} writes them. */
const MEMBERS = new Set([
  ...['aws-access-key-id', 'awsaccess-key-id', 'awsaccesskeyid', 'signature', 'sig'],
  ...['x-goog-signature', 'x-amz-signature', 'x-amz-credential'],
  ...['token', 'access-token', 'id-token', 'code', 'state', 'key', 'password'],
  ...['secret', 'passwd', 'private-key', 'accesstoken', 'idtoken', 'clientsecret', 'refreshtoken', 'privatekey'],
])

/** `accessToken`, `ACCESS_TOKEN` and `access-token` are one name. */
function plainName(name: string): string {
  return name
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1-$2')
    .toLowerCase()
    .replaceAll(/[_.\s]/g, '-')
}

export function isSecretField(name: string): boolean {
  const plain = plainName(name)
  return FIELDS.has(plain) || plain.endsWith('-token') || plain.endsWith('-secret')
}

/** Of a query, a form or a JSON object; of `user[password]`, each part counts. */
export function isSecretMember(name: string): boolean {
  return name.split(/[[\].]/).some(part => {
    if (part === '') return false
    const plain = plainName(part)
    return MEMBERS.has(plain) || isSecretField(plain) || plain.endsWith('-password')
  })
}

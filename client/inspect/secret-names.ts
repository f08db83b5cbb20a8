/** Decides by name which header fields, query parameters and body members hold a secret. */

const FIELDS = new Set([
  ...['authorization', 'proxy-authorization', 'cookie', 'set-cookie', 'authentication-info'],
  ...['x-access-token', 'x-gitlab-token', 'x-api-key', 'api-key', 'apikey'],
])

/** OpenTelemetry's list of query parameters, our own, and the usual spellings, in the form of {@link plainName}. */
const MEMBERS = new Set([
  ...['aws-access-key-id', 'awsaccess-key-id', 'awsaccesskeyid', 'signature', 'sig'],
  ...['x-goog-signature', 'x-amz-signature', 'x-amz-credential'],
  ...['token', 'access-token', 'id-token', 'code', 'state', 'key', 'password'],
  ...['secret', 'passwd', 'private-key', 'accesstoken', 'idtoken', 'clientsecret', 'refreshtoken', 'privatekey'],
])

/** Maps `accessToken`, `ACCESS_TOKEN` and `access-token` to one name. */
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

/** For members of a query, a form or a JSON object. Each part of `user[password]` counts. */
export function isSecretMember(name: string): boolean {
  return name.split(/[[\].]/).some(part => {
    const plain = plainName(part.trim())
    return MEMBERS.has(plain) || isSecretField(plain) || plain.endsWith('-password')
  })
}

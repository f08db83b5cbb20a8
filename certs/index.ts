/**
 * Certificates, keys and tokens for development and for installations without a PKI.
 *
 * @example
 * ```ts
 * import { createKeys, createToken, writeFiles } from 'sallyport/certs'
 *
 * const { privateJwk, jwks } = await createKeys()
 * const { token } = await createToken({ key: privateJwk, runtime: 'demo', ttl: '1h' })
 * await writeFiles([
 *   { path: 'jwks.json', text: JSON.stringify(jwks), secret: false },
 *   { path: 'token', text: token, secret: true },
 * ])
 * ```
 */

export { formatDuration } from '../protocol/base/durations.ts'
export { isRuntimeName } from '../protocol/base/names.ts'
export { type AuthorityOptions, type CertificateAndKey, createAuthority } from './authority.ts'
export { parseDurationMs } from './duration.ts'
export { FileExistsError, type OutputFile, type WriteOptions, writeFiles } from './files.ts'
export { type CertificateReport, inspectCertificates } from './inspect.ts'
export { createKeys, TOKEN_ALGORITHMS, type TokenAlgorithm, type TokenKeys } from './keys.ts'
export {
  type ClientCertificateOptions,
  createClientCertificate,
  createReplicaCertificate,
  createServerCertificate,
  type LeafOptions,
  REPLICA_NAME,
  type ServerCertificateOptions,
} from './leaf.ts'
export { checkRuntimeName, type HostName, parseHostName, runtimeFromUri, runtimeToUri } from './names.ts'
export { exportPkcs12, type Pkcs12Options } from './pkcs12.ts'
export { type CreatedToken, createToken, inspectToken, type TokenOptions, type TokenReport } from './tokens.ts'

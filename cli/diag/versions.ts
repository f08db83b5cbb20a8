import { arch, platform, release } from 'node:os'
import { packageVersion } from '../../protocol/base/version.ts'
import { MINOR_VERSION, SUBPROTOCOL } from '../../protocol/wire/control.ts'

/** Versions of the package, the protocol, Node and the platform. */
export function versions(): object {
  const { node, openssl, v8 } = process.versions
  const protocol = `${SUBPROTOCOL}.${MINOR_VERSION}`
  return { version: packageVersion(), protocol, node, openssl, v8, platform: `${platform()} ${arch()} ${release()}` }
}

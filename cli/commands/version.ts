import { arch, platform, release } from 'node:os'
import { packageVersion } from '../../protocol/base/version.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch } from '../options.ts'

/** `sallyport version`; with `--json` what a report of a defect needs. */
export const version: Run = async (args, io) => {
  const version = packageVersion()
  if (!hasSwitch(args, 'json')) {
    io.out(`${version}\n`)
    return EXIT.ok
  }
  const { MINOR_VERSION, SUBPROTOCOL } = await import('../../protocol/wire/control.ts')
  const { node, openssl, v8 } = process.versions
  const protocol = `${SUBPROTOCOL}.${MINOR_VERSION}`
  const all = { version, protocol, node, openssl, v8, platform: `${platform()} ${arch()} ${release()}` }
  io.out(`${JSON.stringify(all, undefined, 2)}\n`)
  return EXIT.ok
}

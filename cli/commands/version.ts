import { arch, platform, release } from 'node:os'
import { packageVersion } from '../../protocol/base/version.ts'
import { MINOR_VERSION, SUBPROTOCOL } from '../../protocol/wire/control.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch } from '../options.ts'

/** `sallyport version`; with `--json` what a report of a defect needs. */
export const version: Run = async (args, io) => {
  const { node, openssl, v8 } = process.versions
  const all = {
    version: packageVersion(),
    protocol: `${SUBPROTOCOL}.${MINOR_VERSION}`,
    ...{ node, openssl, v8, platform: `${platform()} ${arch()} ${release()}` },
  }
  io.out(hasSwitch(args, 'json') ? `${JSON.stringify(all, undefined, 2)}\n` : `${all.version}\n`)
  return EXIT.ok
}

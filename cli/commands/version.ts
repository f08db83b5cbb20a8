import { packageVersion } from '../../protocol/base/version.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch } from '../options.ts'
import { printJson } from '../print.ts'

/** `sallyport version`; with `--json`, everything that a bug report needs. */
export const version: Run = async (args, io) => {
  if (hasSwitch(args, 'json')) {
    const { versions } = await import('../diag/versions.ts')
    return printJson(io, versions())
  }
  io.out(`${packageVersion()}\n`)
  return EXIT.ok
}

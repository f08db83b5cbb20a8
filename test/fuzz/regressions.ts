/** Inputs that once broke something: one file each, `regressions/<target>/<hash>.hex`, replayed before every run. */
import { createHash } from 'node:crypto'
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const FOLDER = join(import.meta.dirname, 'regressions')

export interface Regression {
  readonly file: string
  readonly target: string
  readonly input: Buffer
}

export function readRegressions(folder: string = FOLDER): Regression[] {
  return globSync('*/*.hex', { cwd: folder })
    .sort()
    .map(name => {
      const file = join(folder, name)
      const input = Buffer.from(readFileSync(file, 'latin1').replace(/\s/g, ''), 'hex')
      return { file, target: dirname(name), input }
    })
}

/** Returns the file's path. */
export function writeRegression(target: string, input: Buffer, folder: string = FOLDER): string {
  const file = join(folder, target, `${createHash('sha256').update(input).digest('hex').slice(0, 16)}.hex`)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, `${input.toString('hex').replace(/.{120}/g, '$&\n')}\n`)
  return file
}

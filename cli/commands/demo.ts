import type { Run } from '../command.ts'

/** `sallyport demo`, which parses its own arguments. */
export const runDemo: Run = async args => {
  const module = await import('../demo/index.ts')
  return module.demo([...args.positionals])
}

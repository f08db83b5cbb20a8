export function isSupported(version: string): boolean
export function findNode(root: string): string | undefined
export function remedy(root: string): string
